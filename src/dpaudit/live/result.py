"""The result of a live audit: an `AuditResult` like any other, made without showing a score.

What leaves the live audit is the order of its scores, shuffled, with the coins: numbers of errors
at every threshold. No score, no coordinate and no seed is in the result, in a store or on a page.

The verdict cannot be confirmed by fresh runs, so that two tests share the level of
`dpaudit.claims.policy.LIVE`: that of all steps together, and the e-process along the way.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np
from scipy.stats import chi2

from dpaudit import _validate
from dpaudit.audits.identity import (
    LIVE_CANARIES,
    DescribedAdversary,
    DescribedTraining,
    Description,
    Question,
)
from dpaudit.audits.result import AuditResult, read_result
from dpaudit.audits.session import session
from dpaudit.claims import Claim
from dpaudit.errors import DpauditError
from dpaudit.integrations.base import curve_of, in_words, merged
from dpaudit.live.evidence import LiveEvidence
from dpaudit.lower_bounds import estimate
from dpaudit.lower_bounds.estimating import MOST_GROUPS
from dpaudit.privacy import Bound, ThreatModel
from dpaudit.scores import AuditRecord, ScoreBlock, Scores, Store

SUSPECTED, PROVEN = 20.0, 2000.0
"""E-values along the way that suspect and prove a violation; see `dpaudit.claims.policy.LIVE`."""

MOST_CLIPPED = 1.01
"""Clip norms that one gradient may change the clipped sum by, with room for rounding."""

LARGEST = 1e300
"""A larger e-value is stored as this one, because JSON has no infinite numbers."""


@final
@dataclass(kw_only=True)
class Watched:
    """What is seen of the training beside the scores; filled in while it runs.

    Arguments:
        name: Name of the audit; it may be `None`.
        device: Device of the training, in words.
        score: ``difference`` or ``released``.
        unit: The unit of privacy whose contribution is clipped.
        batch_sizes: Sizes of the observed batches; empty if they are not known.
        expected_batch: Their expectation under the claim.
        reported: Noise multiplier and sampling rate that the accountant was told in each step.
        bypassed: Number of steps in which the optimizer was not asked to add noise.
        clipping: By how much one long gradient changed a clipped sum, in clip norms; `None` if it
            was not tested.
        check_failure: The exception that ended the test of clipping; empty if none did.
        outside: What the training changes outside the private step, as sentences.
        problem: Why the training is not complete, as a sentence.
        seconds: Duration of the training.
        began: When it began, by the clock of this machine (UTC).
        claim_of: The claim of so many ``steps``; by default that of the steps as reported.
    """

    name: str | None = None
    device: str = platform.machine()
    score: str = "difference"
    unit: str = "record"
    batch_sizes: list[int] = field(default_factory=list)
    expected_batch: float | None = None
    reported: list[tuple[float, float]] = field(default_factory=list)
    bypassed: int = 0
    clipping: float | None = None
    check_failure: str = ""
    outside: tuple[str, ...] = ()
    problem: str | None = None
    seconds: float = 0.0
    began: str = ""
    claim_of: Callable[..., Claim] | None = None


def live_result(
    evidence: LiveEvidence,
    watched: Watched,
    question: Question,
    *,
    store: str | os.PathLike[str] | Store | None = None,
) -> AuditResult:
    """The result of what was observed so far; with a store, it is kept there.

    Arguments:
        evidence: The scores and the e-process.
        watched: What else is known.
        question: The claim, by default that of the steps as they were reported; delta, confidence.
        store: The store, or its file. A new file can be read by its owner only.
    """
    if evidence.steps == 0:
        raise DpauditError(
            "the training made no step that was observed: nothing was audited. Open the block "
            "before training, with the optimizer that the training uses"
        )
    groups = merged([(noise, rate, 1) for noise, rate in evidence.history])
    own = _claim_of(groups) if watched.claim_of is None else watched.claim_of(steps=evidence.steps)
    claim = question.claim or own.per(watched.unit)
    doubts = [
        *([] if watched.problem is None else [f"Incomplete: {watched.problem}."]),
        *watched.outside,
        *_step_doubts(evidence, watched.bypassed),
        *(
            _claim_doubts(claim, watched.reported or evidence.history, question.delta)
            if question.claim
            else ()
        ),
    ]
    tested, untested = ["the noise and its accounting"], []
    if not watched.batch_sizes or watched.expected_batch is None:
        untested.append("sampling by the loader")
    else:
        tested.append("the sizes of batches")
        rate = evidence.history[0][1]
        doubts += _sampling_doubts(watched.batch_sizes, watched.expected_batch, rate)
    if watched.clipping is None:
        failed = f"its test ended in {watched.check_failure}; " if watched.check_failure else ""
        untested.append(f"clipping ({failed}run dpaudit check)")
    else:
        tested.append("clipping in the first batch")
        if watched.clipping > MOST_CLIPPED:
            doubts.append(
                f"Clipping: one long gradient changes the clipped sum by {watched.clipping:.4g} C, "
                "and at most C is allowed; run dpaudit check."
            )
    untested.append("what happens outside of the private step")
    hidden = final_model_bound(evidence, question)
    facts = {
        "question": Question(
            claim=claim, delta=question.delta, confidence=question.confidence
        ).to_dict(),
        "doubts": doubts,
        "covers": " and ".join(filter(None, [", ".join(tested[:-1]), tested[-1]])),
        "seconds": round(watched.seconds, 3),
        "live": {
            "e_value": min(evidence.largest_e_value, LARGEST),
            "history": groups if len(groups) <= MOST_GROUPS else None,
            "began": watched.began,
            "notices": [
                f"tested: {'; '.join(tested)}. Not tested: {'; '.join(untested)}",
                *([] if hidden is None else [_hidden_in_words(hidden)]),
            ],
        },
    }
    description = described(evidence, watched)
    with ExitStack() as stack:
        if not isinstance(store, Store):
            store = stack.enter_context(opened(store))
        record = store.begin(watched.name, description.to_dict(), session(watched.device))
        return _stored(record, evidence, facts)


def described(evidence: LiveEvidence, watched: Watched) -> Description:
    """What decides the scores, as far as others may know it."""
    return Description(
        mechanism=DescribedTraining(
            name="live audit",
            source=_script(),
            canary=secrets.token_hex(8),  # no two live audits have the same canaries
        ),
        adversary=DescribedAdversary(
            name=LIVE_CANARIES,
            threat_model=ThreatModel.STANDARD.value,
            settings={"score": watched.score},
        ),
        runs=1,
        canaries=len(evidence.scores),
        coin="fair",
    )


def _stored(record: AuditRecord, evidence: LiveEvidence, facts: dict[str, object]) -> AuditResult:
    """Keep the order of the scores, and read the result from the record."""
    count = len(evidence.scores)
    ranks, coins = evidence.ranks(evidence.scores)
    block = ScoreBlock(
        run=np.zeros(count, dtype=np.int64),
        canary=np.arange(count),
        horizon=np.full(count, evidence.steps),
        inserted=coins,
        score=ranks,
    )
    record.add_tile(0, block)
    record.annotate(facts)
    result = read_result(record)
    record.finish({**facts, **result.stored()})
    return result


def _script() -> str:
    """SHA-256 of the script that trains; empty where there is no file, as in a notebook."""
    try:
        return hashlib.sha256(Path(sys.modules["__main__"].__file__ or "").read_bytes()).hexdigest()
    except (AttributeError, OSError):
        return ""


def opened(store: str | os.PathLike[str] | None) -> Store:
    """The store; a new file can be read by its owner only."""
    if store is None:
        return Store.open(":memory:")
    path = Path(_validate.path("store", store))
    if not path.exists() and path.parent.is_dir():
        path.touch(0o600)
    return Store.open(path)


Groups = Sequence[tuple[float, float, int]]


def _claim_of(groups: Groups) -> Claim:
    """The claim of the steps as they were reported."""
    return curve_of(groups, in_words(groups))


def _step_doubts(evidence: LiveEvidence, bypassed: int) -> list[str]:
    """Steps that were not private, or whose sums were no numbers."""
    doubts = []
    if bypassed:
        doubts.append(f"{bypassed:,} of {evidence.steps:,} steps were not private.")
    if evidence.not_finite:
        doubts.append(
            f"In {evidence.not_finite:,} of {evidence.steps:,} steps, noisy sums were not finite."
        )
    return doubts


def _claim_doubts(claim: Claim, reported: Sequence[tuple[float, float]], delta: float) -> list[str]:
    """Where the claim is about other steps than those that the accountant was told."""
    groups, doubts = merged([(noise, rate, 1) for noise, rate in reported]), []
    told, settings = _claim_of(groups), claim.settings
    if claim.epsilon(delta) < 0.99 * told.epsilon(delta):
        doubts.append(
            f"The optimizer reports epsilon {told.epsilon(delta):.2f} to its accountant, the "
            f"claim says {claim.epsilon(delta):.2f}."
        )
    if settings.get("steps") not in (None, len(reported)):
        doubts.append(
            f"The claim is about {settings['steps']:,} steps, and {len(reported):,} were observed."
        )
    rates = {rate for _, rate, _ in groups}
    claimed = settings.get("sampling_rate") or 1.0
    if "noise_multiplier" in settings and any(abs(rate - claimed) > 1e-3 * rate for rate in rates):
        doubts.append(
            f"The claim is about sampling rate {claimed:g}, and the optimizer reports "
            f"{', '.join(f'{rate:g}' for rate in sorted(rates))} to its accountant."
        )
    return doubts


def final_model_bound(evidence: LiveEvidence, question: Question) -> Bound | None:
    """What the final model alone shows of the canaries (hidden state); `None` if not observed.

    Its score is how far the parameter at the coordinate has moved, which SGD does in proportion to
    the sum of all noisy gradients.
    """
    if evidence.final is None or not np.isfinite(evidence.final).all():
        return None
    ranks, coins = evidence.ranks(evidence.final)
    scores = Scores(score=ranks, inserted=coins)
    return estimate(
        scores, delta=question.delta, confidence=question.confidence, method="gaussian-dp"
    )


def _hidden_in_words(bound: Bound) -> str:
    return (
        f"the final model alone (hidden state) shows epsilon >= {bound.epsilon:.2f}, "
        f"{100 * (bound.confidence or 0):g} % confidence, if {', '.join(bound.assumptions)}"
    )


def _sampling_doubts(sizes: Sequence[int], expected: float, rate: float) -> list[str]:
    """A doubt where batch sizes do not vary as those of Poisson sampling."""
    if rate >= 1:
        return []
    variance = expected * (1 - rate)
    spread = float(((np.asarray(sizes) - expected) ** 2).sum() / variance)
    p_value = 2 * min(chi2.cdf(spread, len(sizes)), chi2.sf(spread, len(sizes)))
    if p_value > 0.001:
        return []
    return [
        f"Batch sizes have a standard deviation of {np.std(sizes):.1f} around "
        f"{np.mean(sizes):.1f}; Poisson sampling, which the claim assumes, has "
        f"{math.sqrt(variance):.1f} around {expected:.1f}."
    ]
