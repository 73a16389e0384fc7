"""A page of the audit of a user's own training: scores, a claim and its test are all there is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpaudit.errors import InvalidScores
from dpaudit.privacy import Bound, Bounds
from dpaudit.report.facts import facts_of, progress, seconds_in_words, sessions
from dpaudit.report.page_data import MOST_THRESHOLDS, Evidence, Facts, PageData, evidence

if TYPE_CHECKING:
    from dpaudit.scores import AuditRecord, Scores
    from dpaudit.your_training.result import TrainingAudit

OWN_TRAINING = "your training"
"""What the settings of such an audit call it."""

WATCHED = (
    "The scores were watched as they came, and the audit would have stopped at a violation. The "
    "test of the claim and the anytime bounds hold whenever one stops. The proven curves, the "
    "bound's growth and the threshold's numbers hold for a number of runs that was fixed "
    "beforehand, and are only pictures here."
)

AGAIN = (
    "The command that made it, given again, trains nothing, since its runs are kept, and keeps the "
    "claim too."
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
    from dpaudit.your_training.auditing import read_training_audit

    audit = read_training_audit(record, delta=delta, confidence=confidence)
    if audit is None:
        return _page_without_claim(record, delta, confidence, most_thresholds)
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


def _page_without_claim(
    record: AuditRecord, delta: float, confidence: float, most_thresholds: int
) -> PageData:
    """The page of an unfinished audit, or of one that an earlier dpaudit kept without its claim."""
    from dpaudit.your_training.result import LEADING

    configuration, kept = record.configuration, record.summary or {}
    seed = int(configuration["seed"])
    scores = record.scores()
    name = configuration["mechanism"]["name"]
    found: Evidence | None = None
    notices: tuple[str, ...] = ()
    verdict, sentence = "too-few-scores", "No bound yet: there are too few scores for any."
    try:
        lower = _lower(kept, scores, delta, confidence, seed)
    except InvalidScores as error:
        lower, sentence = None, f"No bound yet: {error}."
    else:
        verdict, sentence = str(kept.get("verdict", "unfinished")), str(kept.get("sentence", ""))
        notices = tuple(_notices_without_claim(kept, lower, delta))
    if lower is not None:
        leading = next((bound for bound in lower if bound.method in LEADING), lower.bounds[0])
        found = evidence(
            scores,
            lower=lower,
            leading=leading,
            upper=tuple(_claimed(kept, delta)),
            seed=seed,
            most_thresholds=most_thresholds,
        )
        sentence = sentence or (
            f"Unfinished: so far the scores show epsilon >= {leading.epsilon:.2f} at delta = "
            f"{leading.delta:g} ({leading.method}, {100 * confidence:g} % confidence)."
        )
    return PageData(
        title=record.name or name,
        subtitle=f"{name}, scored by {kept.get('adversary') or configuration['adversary']['name']}",
        identity=record.id,
        verdict=verdict,
        sentence=sentence,
        evidence=found,
        progress=None if record.finished else progress(scores.runs, int(configuration["runs"])),
        notices=notices,
        facts=(*facts_of(configuration), sessions(record)),
    )


def _lower(
    kept: Mapping[str, Any], scores: Scores, delta: float, confidence: float, seed: int
) -> Bounds | None:
    """The bounds of the scores; of an audit that was watched the kept ones, for what they hold."""
    from dpaudit.audits.assessment import lower_bounds

    if not _watched(kept):
        return lower_bounds(scores, delta=delta, confidence=confidence, seed=seed)
    bounds = tuple(_bound(one) for one in kept["bounds"])
    as_asked = all((bound.delta, bound.confidence) == (delta, confidence) for bound in bounds)
    return Bounds(bounds=bounds) if as_asked else None


def _watched(kept: Mapping[str, Any]) -> bool:
    return str(kept.get("lower", {}).get("method")).startswith("anytime")


def _notices_without_claim(
    kept: Mapping[str, Any], lower: Bounds | None, delta: float
) -> Iterator[str]:
    if not kept:
        yield NOT_FINISHED
        return
    if _watched(kept):
        yield WATCHED
    known = f"{kept['delta']:g}"
    if lower is None:
        yield (
            f"The bounds that hold here are known at delta = {known} and at the confidence of the "
            f"audit only. {AGAIN}"
        )
    elif kept["delta"] != delta:
        yield f"What was promised is known at delta = {known} only. {AGAIN}"
    else:
        yield f"What was promised is kept as one number, so that its curve is not drawn. {AGAIN}"


def _bound(kept: Mapping[str, Any]) -> Bound:
    """A lower bound of an audit that was watched, as it was kept."""
    return Bound(
        epsilon=float(kept["epsilon"]),
        delta=float(kept["delta"]),
        side="lower",
        method=str(kept["method"]),
        confidence=float(kept["confidence"]),
        assumptions=tuple(kept["assumptions"]),
        sample_size=kept["sample_size"],
        mu=kept.get("mu"),
        notes=tuple(kept["notes"]),
        details={"threshold_rule": kept["threshold_rule"]},
    )


def _claimed(kept: Mapping[str, Any], delta: float) -> list[Bound]:
    """The promised pair as it was kept, where it is finite and about the same delta."""
    upper = kept.get("upper", {})
    epsilon = upper.get("epsilon")
    if upper.get("delta") != delta or not isinstance(epsilon, int | float):
        return []
    return [
        Bound(
            epsilon=float(epsilon),
            delta=delta,
            side="upper",
            method="claimed",
            assumptions=tuple(upper.get("assumptions", ())),
        )
    ]
