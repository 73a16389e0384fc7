"""A page of the audit of a user's own training: scores, a claim and its test are all there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpaudit.errors import InvalidScores
from dpaudit.privacy import Bound, Bounds
from dpaudit.report.facts import facts_of, progress, seconds_in_words, sessions
from dpaudit.report.page_data import MOST_THRESHOLDS, Evidence, Facts, PageData, evidence

if TYPE_CHECKING:
    from dpaudit.scores import AuditRecord
    from dpaudit.your_training.result import TrainingAudit

ANYTIME = "anytime-gaussian-dp"
"""The lower bound of an audit that may stop at any time."""

OWN_TRAINING = "your training"
"""What the settings of such an audit call it."""

WATCHED = (
    "The scores were watched as they came, and the audit would have stopped at a violation. The "
    "test of the claim and the anytime bound hold whenever one stops. All other bounds, the proven "
    "curves and the threshold's numbers hold for a number of runs that was fixed beforehand, and "
    "are only pictures here."
)

CURVE_NOT_KEPT = (
    "The store keeps what was promised as one number, not as a curve, so that the curve is not "
    "drawn here; the page of the result itself, dpaudit.report.write_page(result, path), has it."
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
        notices=(*audit.notes, *((WATCHED,) if _watched(audit.leading.method) else ())),
        facts=(*facts_of(audit.configuration), this_call),
    )


def own_record_page(
    record: AuditRecord, *, delta: float, confidence: float, most_thresholds: int
) -> PageData:
    """The page of such an audit in a store, which keeps the promised pair but not its curve.

    Arguments:
        record: The audit.
        delta: Of the bounds.
        confidence: Of each lower bound.
        most_thresholds: How many thresholds the page may carry for the reader to try.
    """
    from dpaudit.audits.assessment import lower_bounds

    configuration, kept = record.configuration, record.summary or {}
    seed = int(configuration["seed"])
    scores = record.scores()
    name = configuration["mechanism"]["name"]
    found: Evidence | None = None
    notices: tuple[str, ...] = ()
    verdict, sentence = "too-few-scores", "No bound yet: there are too few scores for any."
    try:
        lower: Bounds | None = lower_bounds(scores, delta=delta, confidence=confidence, seed=seed)
    except InvalidScores as error:
        lower, sentence = None, f"No bound yet: {error}."
    if lower is not None:
        anytime = _anytime(kept, delta, confidence)
        lower = replace(lower, bounds=(*anytime, *lower.bounds))
        leading = next(
            (b for b in (*anytime, *lower) if b.method in (ANYTIME, "gaussian-dp")), lower.bounds[0]
        )
        found = evidence(
            scores,
            lower=lower,
            leading=leading,
            upper=tuple(_claimed(kept, delta)),
            seed=seed,
            most_thresholds=most_thresholds,
        )
        verdict, sentence = str(kept.get("verdict", "unfinished")), str(kept.get("sentence", ""))
        sentence = sentence or (
            f"Unfinished: so far the scores show epsilon >= {leading.epsilon:.2f} at delta = "
            f"{leading.delta:g} ({leading.method}, {100 * confidence:g} % confidence)."
        )
        watched = anytime or _watched(str(kept.get("lower", {}).get("method")))
        notices = (*((WATCHED,) if watched else ()), CURVE_NOT_KEPT)
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


def _watched(method: str) -> bool:
    return method.startswith("anytime")


def _anytime(kept: Mapping[str, Any], delta: float, confidence: float) -> tuple[Bound, ...]:
    """The bound of an audit that was watched, as it was kept: scores alone do not tell."""
    lower = kept.get("lower", {})
    asked = (ANYTIME, delta, confidence)
    if (lower.get("method"), lower.get("delta"), lower.get("confidence")) != asked:
        return ()
    bound = Bound(
        epsilon=float(lower["epsilon"]),
        delta=delta,
        side="lower",
        method=ANYTIME,
        confidence=confidence,
        assumptions=tuple(lower.get("assumptions", ())),
        sample_size=lower.get("sample_size"),
        mu=lower.get("mu"),
        notes=tuple(lower.get("notes", ())),
    )
    return (bound,)


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
