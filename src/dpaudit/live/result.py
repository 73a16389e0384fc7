"""The result of a live audit: two tests, the shown epsilon, and what was not covered.

The verdict cannot be confirmed by fresh runs, so each of the two tests may be wrong with
probability 0.0005 only: the e-process along the way with an e-value of 2,000, and the test of all
steps together with a p-value of 0.0005. An e-value of 20 or a p-value of 0.05 is a suspicion.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from scipy.stats import chi2

from dpaudit.claims import Claim, ClaimTest, Policy, judge
from dpaudit.claims.policy import Verdict
from dpaudit.errors import DpauditError
from dpaudit.integrations.base import curve_of, in_words, merged
from dpaudit.live.evidence import LiveEvidence
from dpaudit.lower_bounds import estimate
from dpaudit.privacy import Bound
from dpaudit.report.words import power_line
from dpaudit.scores import Scores

SUSPECTED, PROVEN = 20.0, 2000.0
POLICY = Policy(suspect=1 / SUSPECTED, prove=1 / PROVEN)

OUTSIDE = (
    "clipping of each example's gradient: run dpaudit check",
    "parameters that another optimizer trains, and what happens outside of the private step",
)
"""What no live audit covers."""


@final
@dataclass(frozen=True, kw_only=True)
class LiveResult:
    """What a live audit found. It holds no score and no coin, which are as secret as the noise.

    Arguments:
        test: The test of the claim on all steps together.
        e_value: The largest e-value along the way.
        lower: Lower bounds on epsilon, the tightest method first.
        claimed: The claimed epsilon.
        delta: The delta of both.
        steps: Number of steps that were observed.
        canaries: Number of canaries.
        doubts: Reasons why the verdict cannot be ``consistent``.
        not_covered: What this audit did not test.
    """

    test: ClaimTest
    e_value: float
    lower: tuple[Bound, ...]
    claimed: float
    delta: float
    steps: int
    canaries: int
    doubts: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """``violation``, ``consistent`` or ``inconclusive``."""
        if self.e_value >= PROVEN or self.test.verdict == "violation":
            return "violation"
        return "inconclusive" if self.suspected or self.doubts else self.test.verdict

    @property
    def suspected(self) -> bool:
        """Whether the evidence speaks against the claim without proving a violation."""
        proven = self.e_value >= PROVEN or self.test.verdict == "violation"
        return not proven and (self.e_value >= SUSPECTED or self.test.suspected)

    @property
    def shown(self) -> Bound:
        """The first lower bound."""
        return self.lower[0]

    def summary(self) -> str:
        """The verdict, what was claimed and shown, and what was not covered, in a few lines."""
        word = self.verdict.upper() + (" (suspected)" if self.suspected else "")
        lines = [
            f"{word}   live audit, {self.canaries:,} canaries, {self.steps:,} steps",
            "",
            f"  claimed   epsilon <= {self.claimed:5.2f}   {self.test.claim.description}",
        ]
        for place, bound in enumerate(self.lower):
            condition = f"if {bound.assumptions[0]}" if bound.assumptions else "without assumptions"
            word = "shown  " if place == 0 else "       "
            lines.append(f"  {word}   epsilon >= {bound.epsilon:5.2f}   {condition}")
        sentences = [
            f"All steps: p = {self.test.p_value:.2g}. Along the way: e-value {self.e_value:,.3g} "
            "(2,000 is a violation). Both assume independent noise at the coordinates."
        ]
        if self.verdict != "violation":
            sentences.append(power_line(self.test.power))
        if self.suspected:
            sentences.append("Watch the next training too: independent e-values multiply.")
        sentences += [*self.doubts, f"Not covered: {'; '.join(self.not_covered)}."]
        lines.append("")
        for sentence in sentences:
            lines += textwrap.wrap(sentence, 80, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, without scores and coins."""
        return {
            "verdict": self.verdict,
            "suspected": self.suspected,
            "claim": self.test.claim.description,
            "claimed_epsilon": self.claimed if math.isfinite(self.claimed) else "inf",
            "delta": self.delta,
            "lower": [bound.to_dict() for bound in self.lower],
            "p_value": self.test.p_value,
            "e_value": min(self.e_value, 1e300),
            "steps": self.steps,
            "canaries": self.canaries,
            "doubts": list(self.doubts),
            "not_covered": list(self.not_covered),
        }


def read_result(
    evidence: LiveEvidence,
    *,
    claim: Claim | None,
    delta: float,
    confidence: float,
    batch_sizes: Sequence[int] = (),
    expected_batch: float | None = None,
    bypassed: int = 0,
    problem: str | None = None,
) -> LiveResult:
    """The result of what was observed so far.

    Arguments:
        evidence: The scores and the e-process.
        claim: The claim; by default that of the steps as they were reported.
        delta: Delta at which epsilon is claimed and shown.
        confidence: Confidence of the lower bounds.
        batch_sizes: Sizes of the observed batches; empty if they are not known.
        expected_batch: Their expectation under the claim.
        bypassed: Number of steps that were not private.
        problem: Why the training is not complete, as a sentence.
    """
    if evidence.steps == 0:
        raise DpauditError(
            "the training made no step that was observed: nothing was audited. Open the block "
            "before training, with the optimizer that the training uses"
        )
    history = [(noise, rate, 1) for noise, rate in evidence.history]
    groups = merged(history)
    reported = curve_of(groups, in_words(groups))
    doubts = [] if problem is None else [f"Incomplete: {problem}."]
    if bypassed:
        doubts.append(f"{bypassed:,} of {evidence.steps:,} steps were not private.")
    if claim is None:
        claim = reported
    elif claim.epsilon(delta) < 0.99 * reported.epsilon(delta):
        doubts.append(
            f"The optimizer reports epsilon {reported.epsilon(delta):.2f} to its accountant, the "
            f"claim says {claim.epsilon(delta):.2f}."
        )
    not_covered = list(OUTSIDE)
    if not batch_sizes or expected_batch is None:
        not_covered.insert(0, "sampling by the loader")
    else:
        doubts += _sampling_doubts(batch_sizes, expected_batch, evidence.history[0][1])
    scores = Scores(score=evidence.scores, inserted=evidence.coins)
    bound = partial(estimate, scores, delta=delta, confidence=confidence)
    if len(groups) == 1:
        (_, rate, steps) = groups[0]
        tightest = bound(method="dpsgd", sampling_rate=rate, steps=steps)
    else:
        tightest = bound(method="gaussian-dp")
    return LiveResult(
        test=judge(scores, claim, policy=POLICY, private_gradients=True, only_noise=True),
        e_value=evidence.largest_e_value,
        lower=(tightest, bound()),
        claimed=claim.epsilon(delta),
        delta=delta,
        steps=evidence.steps,
        canaries=len(evidence.scores),
        doubts=tuple(doubts),
        not_covered=tuple(not_covered),
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
