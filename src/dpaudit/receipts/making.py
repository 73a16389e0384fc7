"""From a stored audit to its receipt, and back to a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpaudit._version import __version__
from dpaudit.audits import AuditResult, Description, Question, read_result
from dpaudit.audits.result import result_of
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.receipts.form import (
    MOST_SCORES_INSIDE,
    Attempts,
    Computed,
    FailedRun,
    Given,
    Phase,
    Receipt,
    as_plain,
    digest_of,
    failures_in,
    table_of,
)
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Scores
from dpaudit.scores.store import scores_of

FACTS = ("adversary", "covers", "doubts", "broken", "alike", "live")
"""What the first trainings showed and a later reader cannot see in the scores."""

_ADDED = "add or remove: runs differ by whether the canary is in them"
_UNITS = {
    "mechanism": ("one example: the canary takes the place of no other example", _ADDED),
    "training": (
        "what the training function inserts, or the record by which its two data sets differ",
        "add, remove or replace, as the training function and its data sets define it",
    ),
    "live": ("one gradient of the clip norm, which takes part in steps as an example does", _ADDED),
}
"""What was inserted or left out, and how runs differ by it."""

_LOOKS = {
    "live": "once, after all steps, and along the way by an e-process; both share the level",
    "any": "after every step, by a test that is valid whenever the audit stops",
    "once": "once, after all runs",
    "twice": "once after all runs, then once after all fresh runs",
}


def receipt_of(
    record: AuditRecord,
    *,
    claim: Claim | None = None,
    delta: float | None = None,
    confidence: float | None = None,
    detect: float | None = None,
    power: float | None = None,
    include_scores: bool | None = None,
    plan: str | None = None,
) -> Receipt:
    """The receipt of a finished audit in a store.

    See also: `dpaudit.receipts.verify`, which checks one.

    Arguments:
        record: The audit; see `dpaudit.Store.audit`.
        claim: Another claim than that of the audit; see `dpaudit.audits.read_result`.
        delta: Another delta.
        confidence: Another confidence of the lower bounds.
        detect: Another fraction of the noise that must be detectable.
        power: Another probability of detection.
        include_scores: Whether the receipt holds the scores, or only their digest. A live audit
            has none to include, because they contain the noise of the released model: its receipt
            holds the number of errors at every threshold, as values in the order of the scores.
        plan: Digest of the plan that was registered before the first run.
    """
    result = read_result(
        record, claim=claim, delta=delta, confidence=confidence, detect=detect, power=power
    )
    if not result.finished:
        raise InvalidInput(
            f"audit {record.label} must be finished for a receipt, and has {result.runs:,} of "
            f"{result.asked:,} runs; repeat its command to play the others"
        )
    if result.description.live and include_scores:
        raise InvalidInput(
            "include_scores must be left out for a live audit: its scores contain the noise of the "
            "released model, and are not kept; the receipt holds the numbers of errors"
        )
    summary = record.summary
    horizon = result.final.horizon
    phases = [
        _phase(record, phase, horizon, include_scores=include_scores is not False)
        for phase in ((0, 1) if result.fresh_runs else (0,))
    ]
    given = Given(
        audit=record.id,
        name=record.name,
        created=record.created,
        finished=record.finished,
        call=str(summary.get("call", "")),
        configuration=as_plain(record.configuration),
        question=as_plain(result.question.to_dict()),
        facts=as_plain({name: summary[name] for name in FACTS if name in summary}),
        phases=tuple(phases),
        sessions=tuple(as_plain(dict(version)) for version in record.versions),
        played_on=dict(record.played_on()),
        horizon=horizon,
        attempts=attempts_known(record),
        plan=plan,
        asked_afterwards=claim is not None,
    )
    return Receipt(dpaudit=__version__, given=given, computed=computed_from(result)).sealed()


def _phase(record: AuditRecord, phase: int, horizon: int, *, include_scores: bool) -> Phase:
    tiles = record.tiles(phase).values()
    scores = scores_of(tiles)[horizon]
    inside = include_scores and len(scores) <= MOST_SCORES_INSIDE
    return Phase(
        phase=phase,
        runs=scores.runs,
        scores=len(scores),
        digest=digest_of(scores),
        table=table_of(scores) if inside else None,
        failures=tuple(
            FailedRun(
                run=tile.run, inserted=tile.inserted, canaries=tile.canaries, error=tile.error
            )
            for tile in tiles
            if isinstance(tile, Failure)
        ),
    )


def attempts_known(record: AuditRecord) -> Attempts:
    """How many audits of the same training the store of this audit knows, this one included."""
    mechanism = record.configuration.get("mechanism")
    same_training, same_name, unfinished = 0, 0, 0
    for other in record.store.audits():
        described = other.configuration.get("mechanism")
        if not isinstance(described, Mapping) or not isinstance(mechanism, Mapping):
            continue
        # Another canary is another attempt at the same code; a live audit always has another one.
        same_training += _code(described) == _code(mechanism)
        if described.get("name") == mechanism.get("name"):
            same_name += 1
            unfinished += other.finished is None
    return Attempts(same_training=same_training, same_name=same_name, unfinished=unfinished)


def _code(mechanism: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is described of a training, or of a mechanism, beside the canary."""
    return {key: value for key, value in mechanism.items() if key != "canary"}


def computed_from(result: AuditResult) -> Computed:
    """Everything in a receipt that follows from its given part."""
    final, test = result.final, result.test
    leading = result.leading
    others = [bound for bound in result.lower if bound is not leading]
    description = result.description
    looks = "twice" if test is not None and test.stage == 2 else "once"
    looks = "live" if description.live else "any" if description.until_violation else looks
    kind = "mechanism" if description.training is None else "training"
    unit, adjacency = _UNITS["live" if description.live else kind]
    if test is not None and test.claim.unit != "record":
        unit += f"; the claim is for a {test.claim.unit}"
    threat_model = result.threat_model
    return Computed(
        verdict=result.verdict,
        suspected=result.suspected,
        claim=None if test is None else as_plain(test.claim.to_dict()),
        lower=tuple(as_plain(bound.to_dict()) for bound in (leading, *others)),
        upper=tuple(as_plain(bound.to_dict()) for bound in result.upper),
        test=None if test is None else as_plain(test.to_dict()),
        power=None if test is None else as_plain(test.power.to_dict()),
        tensors={} if test is None else as_plain(test.tensors),
        doubts=final.doubts,
        bare_verdict=None if test is None or test.bare is None else test.bare.verdict,
        tightness=final.tightness,
        threat_model=None if threat_model is None else threat_model.value,
        unit=unit,
        adjacency=adjacency,
        covers=final.covers,
        looks=_LOOKS[looks],
        runs=result.runs,
        asked=result.asked,
        failed=len(result.failures),
        fresh_runs=result.fresh_runs,
        stopped_at=result.stopped_at,
        risk=tuple(as_plain(term.to_dict()) for term in result.risk),
    )


def result_from(given: Given, tables: Mapping[int, Scores]) -> AuditResult:
    """The result that the given part of a receipt has, computed as ``dpaudit show`` does.

    Arguments:
        given: What the auditor recorded.
        tables: The scores of each phase.
    """
    blocks = [list(_blocks(phase, tables[phase.phase], given.horizon)) for phase in given.phases]
    return result_of(
        description_of(given),
        Question.from_dict(given.question),
        blocks[0],
        [] if len(blocks) == 1 else blocks[1],
        given.facts,
        other_claim=given.asked_afterwards,
        audit=given.audit,
        name=given.name,
        device="",
        resumed=0,
    )


def _blocks(phase: Phase, scores: Scores, horizon: int) -> Iterator[ScoreBlock | Failure]:
    """The runs of a phase as the store has them."""
    yield ScoreBlock(
        run=scores.run,
        canary=scores.canary,
        horizon=np.full(len(scores), horizon),
        inserted=scores.inserted,
        score=scores.score,
    )
    yield from failures_in(phase)


def description_of(given: Given) -> Description:
    """The typed description of what was played."""
    return Description.from_dict(given.configuration)
