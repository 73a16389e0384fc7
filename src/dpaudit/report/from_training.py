"""A page of the audit of a user's own training: scores, a claim and its test are all there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dpaudit.errors import InvalidScores
from dpaudit.report.facts import facts_of, progress, seconds_in_words, sessions
from dpaudit.report.page_data import MOST_THRESHOLDS, Evidence, Facts, PageData, evidence

if TYPE_CHECKING:
    from dpaudit.scores import AuditRecord
    from dpaudit.trainings.result import TrainingAudit

OWN_TRAINING = "your training"
"""What the settings of such an audit call it."""

WATCHED = (
    "The scores were watched as they came, and the audit would have stopped at a violation. The "
    "test of the claim and the anytime bounds hold whenever one stops. The proven curves, the "
    "bound's growth and the threshold's numbers hold for a number of runs that was fixed "
    "beforehand, and are only pictures here."
)

NOT_FINISHED = (
    "What is promised comes into the store when the audit is finished, and is not shown before. If "
    "the scores are watched as they come, to stop at a violation, none of these bounds holds yet."
)


def training_page(audit: TrainingAudit, *, most_thresholds: int = MOST_THRESHOLDS) -> PageData:
    """The page of a result of `dpaudit.audit_training`.

    Arguments:
        audit: The result.
        most_thresholds: How many thresholds the page may carry for the reader to try.
    """
    claimed = audit.least_upper
    this_call = Facts(
        heading="this call",
        rows=(
            ("wall time", seconds_in_words(audit.seconds)),
            ("runs", f"{audit.runs:,}"),
            ("failed runs", f"{len(audit.failures):,}"),
            ("runs taken from the store", f"{audit.resumed:,}"),
        ),
    )
    return PageData(
        title=audit.name or audit.training,
        subtitle=f"{audit.training}, scored by {audit.adversary}",
        identity=audit.audit,
        verdict=audit.verdict,
        sentence=audit.sentence,
        evidence=evidence(
            audit.scores,
            lower=audit.lower,
            leading=audit.leading,
            upper=(claimed,) if math.isfinite(claimed.epsilon) else (),
            claim=audit.test.claim,
            test=audit.test,
            seed=int(audit.configuration.get("seed", 0)),
            most_thresholds=most_thresholds,
        ),
        notices=(*audit.notes, *_notices(audit)),
        facts=(*facts_of(audit.configuration), this_call),
    )


def own_record_page(
    record: AuditRecord, *, delta: float, confidence: float, most_thresholds: int
) -> PageData:
    """The page of such an audit in a store, with the verdict that it came to when it was played.

    Arguments:
        record: The audit.
        delta: Of the bounds.
        confidence: Of each lower bound.
        most_thresholds: How many thresholds the page may carry for the reader to try.
    """
    from dpaudit.trainings.auditing import read_training_audit

    audit = read_training_audit(record, delta=delta, confidence=confidence)
    if audit is None:
        return _unfinished_page(record, delta, confidence, most_thresholds)
    return replace(
        training_page(audit, most_thresholds=most_thresholds),
        sentence=str((record.summary or {})["sentence"]),
        facts=(*facts_of(record.configuration), sessions(record)),
    )


def _notices(audit: TrainingAudit) -> Iterator[str]:
    if audit.test.e_value is not None:
        yield WATCHED
    if math.isinf(audit.least_upper.epsilon):
        yield (
            f"The claim, {audit.test.claim.description}, says nothing at delta = {audit.delta:g}: "
            "there is no epsilon to compare the bounds with. The verdict is about the claim where "
            "it does speak."
        )


def _unfinished_page(
    record: AuditRecord, delta: float, confidence: float, most_thresholds: int
) -> PageData:
    """The page of an audit that goes on: the scores so far, and no claim to hold them to."""
    from dpaudit.audits.assessment import LEADING, lower_bounds

    configuration = record.configuration
    seed, scores = int(configuration["seed"]), record.scores()
    name = configuration["mechanism"]["name"]
    found: Evidence | None = None
    verdict = "too-few-scores"
    notices: tuple[str, ...] = ()
    try:
        lower = lower_bounds(scores, delta=delta, confidence=confidence, seed=seed)
    except InvalidScores as error:
        sentence = f"No bound yet: {error}."
    else:
        leading = next((bound for bound in lower if bound.method == LEADING), lower.bounds[0])
        found = evidence(
            scores, lower=lower, leading=leading, seed=seed, most_thresholds=most_thresholds
        )
        verdict, notices = "unfinished", (NOT_FINISHED,)
        sentence = (
            f"Unfinished: so far the scores show epsilon >= {leading.epsilon:.2f} at delta = "
            f"{leading.delta:g} ({leading.method}, {100 * confidence:g} % confidence)."
        )
    return PageData(
        title=record.name or name,
        subtitle=f"{name}, scored by {configuration['adversary']['name']}",
        identity=record.id,
        verdict=verdict,
        sentence=sentence,
        evidence=found,
        progress=progress(scores.runs, int(configuration["runs"])),
        notices=notices,
        facts=(*facts_of(configuration), sessions(record)),
    )
