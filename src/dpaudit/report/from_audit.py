"""A page of an audit that dpaudit played, finished or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpaudit.errors import InvalidScores, StoreError
from dpaudit.report.facts import facts_of, progress, seconds_in_words, sessions
from dpaudit.report.from_training import OWN_TRAINING, own_record_page
from dpaudit.report.page_data import MOST_THRESHOLDS, Evidence, Facts, Horizon, PageData, evidence
from dpaudit.report.repeat import repeat

if TYPE_CHECKING:
    from dpaudit.audits.result import AuditResult
    from dpaudit.scores import AuditRecord


def audit_page(result: AuditResult, *, most_thresholds: int = MOST_THRESHOLDS) -> PageData:
    """The page of a result.

    See also: `record_page`, which also knows the software that was used.

    Arguments:
        result: The result.
        most_thresholds: How many thresholds the page may carry for the reader to try.
    """
    configuration = result.configuration
    asked = int(configuration["runs"])
    return PageData(
        title=result.name or result.title,
        subtitle=_subtitle(result),
        identity=result.audit,
        verdict=result.verdict,
        sentence=result.sentence,
        evidence=_evidence(result, most_thresholds),
        progress=progress(result.runs, asked),
        notices=result.notices,
        horizons=_horizons(result),
        facts=(*facts_of(configuration), _session(result)),
        repeat=repeat(
            configuration,
            name=result.name,
            store=None,
            identity=result.audit,
            delta=result.final.leading.delta,
            confidence=result.final.leading.confidence or 0.95,
        ),
    )


def record_page(
    record: AuditRecord,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    most_thresholds: int = MOST_THRESHOLDS,
) -> PageData:
    """The page of an audit in a store, whatever its state.

    Arguments:
        record: The audit.
        delta: Of the bounds.
        confidence: Of each lower bound.
        most_thresholds: How many thresholds the page may carry for the reader to try.
    """
    from dpaudit.audits.stored import read_result

    configuration = record.configuration
    if configuration.get("kind") == OWN_TRAINING:
        return own_record_page(
            record, delta=delta, confidence=confidence, most_thresholds=most_thresholds
        )
    _check_ours(record)
    again = repeat(
        configuration,
        name=record.name,
        store=record.database.path,
        identity=record.id,
        delta=delta,
        confidence=confidence,
    )
    facts = (*facts_of(configuration), sessions(record))
    try:
        result = read_result(record, delta=delta, confidence=confidence)
    except (InvalidScores, StoreError) as error:
        return _without_bounds(record, str(error), facts, again)
    page = audit_page(result, most_thresholds=most_thresholds)
    return PageData(**{**vars(page), "facts": facts, "repeat": again})


def _check_ours(record: AuditRecord) -> None:
    missing = {"mechanism", "adversary", "insertion", "runs", "seed"} - set(record.configuration)
    if missing:
        raise StoreError(
            f"audit {record.label} was not played by dpaudit (its settings have no "
            f"{', '.join(sorted(missing))}), so there is no page for it"
        )


def _without_bounds(record: AuditRecord, reason: str, facts: Any, again: Any) -> PageData:
    """Too few scores for any number, and the page says so."""
    configuration = record.configuration
    runs = record.scores().runs
    names = configuration["mechanism"]["name"], configuration["adversary"]["name"]
    return PageData(
        title=record.name or f"{names[0]} by {names[1]}",
        subtitle=f"{names[0]} by {names[1]}",
        identity=record.id,
        verdict="too-few-scores",
        sentence=f"No bound yet: {reason}.",
        evidence=None,
        progress=progress(runs, int(configuration["runs"])),
        facts=facts,
        repeat=again,
    )


def _subtitle(result: AuditResult) -> str:
    steps = result.final.horizon
    period = result.configuration["insertion"]["period"]
    every = "every step" if period == 1 else f"every {period} steps"
    canary = f"a canary at {every} of {steps:,}"
    # Without a name the title says the rest already.
    return f"{result.title}, {canary}" if result.name else canary.capitalize()


def _evidence(result: AuditResult, most_thresholds: int) -> Evidence:
    assessment = result.final
    return evidence(
        assessment.scores,
        lower=assessment.lower,
        leading=assessment.leading,
        upper=assessment.upper.bounds,
        claim=None if assessment.test is None else assessment.test.claim,
        # A test that was made for all runs says nothing of some of them.
        test=assessment.test if result.finished else None,
        seed=result.configuration["seed"],
        most_thresholds=most_thresholds,
    )


def _horizons(result: AuditResult) -> tuple[Horizon, ...]:
    """The bounds along the training, where they were asked for."""
    if len(result.horizons) == 1:
        return ()
    return tuple(
        Horizon(
            steps=assessment.horizon,
            lower=assessment.leading,
            upper=assessment.least_upper,
            verdict=assessment.verdict,
        )
        for assessment in result.horizons
    )


def _session(result: AuditResult) -> Facts:
    from dpaudit._version import __version__

    return Facts(
        heading="this call",
        rows=(
            ("dpaudit", __version__),
            ("device", result.device),
            ("wall time", seconds_in_words(result.seconds)),
            ("runs taken from the store", f"{result.resumed:,}"),
        ),
    )
