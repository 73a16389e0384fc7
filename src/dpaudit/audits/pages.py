"""The report page of an audit: from a result, or from an audit in a store."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpaudit._version import __version__
from dpaudit.audits.evidence.facts import facts_of, progress, seconds_in_words, sessions
from dpaudit.audits.identity import Description
from dpaudit.audits.result import AuditResult, read_result
from dpaudit.errors import InvalidScores, StoreError, TrainingFailed
from dpaudit.privacy import Bound
from dpaudit.report.data import MOST_THRESHOLDS, Facts, Horizon, PageData, Snippet
from dpaudit.scores import AuditRecord

WATCHED = (
    "The scores were tested as they came, and the audit would have stopped at a violation. The "
    "test of the claim and the anytime-valid bounds hold whenever the audit stops. The proven "
    "curves, the growth of the bound and the numbers at a threshold hold only for a number of runs "
    "that was fixed beforehand; here they are illustrations."
)


def result_page(
    result: AuditResult, *, most_thresholds: int = MOST_THRESHOLDS, with_growth: bool = True
) -> PageData:
    """The page of a result.

    See also: `record_page`, which also knows the software that was used.

    Arguments:
        result: The result.
        most_thresholds: Largest number of thresholds that the page may carry.
        with_growth: Whether to compute the bound against the number of runs.
    """
    description = result.description
    this_call = (
        ("dpaudit", __version__),
        ("device", result.device),
        ("duration", seconds_in_words(result.seconds)),
        ("failed runs", f"{len(result.failures):,}"),
        ("runs from the store", f"{result.resumed:,}"),
    )
    return PageData(
        title=result.name or result.title,
        subtitle=_subtitle(result),
        identity=result.audit,
        verdict=result.verdict,
        sentence=result.sentence,
        evidence=result.evidence(most_thresholds=most_thresholds, with_growth=with_growth),
        runs=(result.runs, max(result.runs, result.asked)),
        progress=None if result.finished else progress(result.runs, result.asked),
        notices=(*result.notices, *_notices(result)),
        doubts=result.final.doubts,
        horizons=_horizons(result),
        facts=(
            *_tensors(result),
            *_with_adversary(facts_of(description, result.question.claim), result),
            Facts(heading="this call", rows=this_call, compared=False),
        ),
        repeat=_repeat(result),
    )


def record_page(
    record: AuditRecord,
    *,
    delta: float | None = None,
    confidence: float | None = None,
    most_thresholds: int = MOST_THRESHOLDS,
    with_growth: bool = True,
) -> PageData:
    """The page of an audit in a store, finished or not.

    Arguments:
        record: The audit.
        delta: Delta at which all bounds are computed; by default the audit's own.
        confidence: Confidence of each lower bound; by default the audit's own.
        most_thresholds: Largest number of thresholds that the page may carry.
        with_growth: Whether to compute the bound against the number of runs.
    """
    description = Description.of(record)
    try:
        result = read_result(record, delta=delta, confidence=confidence)
    except (InvalidScores, StoreError, TrainingFailed) as error:
        done = description.runs_in(record)
        return PageData(
            title=record.name or description.title,
            subtitle=description.title,
            identity=record.id,
            verdict="too-few-scores",
            sentence=f"No bound yet: {str(error).splitlines()[0]}.",
            evidence=None,
            runs=(done, description.runs),
            progress=progress(done, description.runs),
            facts=(*facts_of(description), sessions(record)),
        )
    page = result_page(result, most_thresholds=most_thresholds, with_growth=with_growth)
    facts = (*facts_of(description, result.question.claim), sessions(record))
    return replace(
        page,
        facts=(*_tensors(result), *_with_adversary(facts, result)),
        repeat=_repeat(result, store=record.database.path),
    )


def _repeat(result: AuditResult, store: str = "") -> tuple[Snippet, ...]:
    """The call that played the audit, and the command that writes its page."""
    snippets = [Snippet(caption="The call", text=result.call)] if result.call else []
    if store:
        leading = result.leading
        page = ["dpaudit", "report", result.audit[:8], "--store", store]
        page += ["--delta", str(leading.delta), "--confidence", str(leading.confidence or 0.95)]
        snippets.append(Snippet(caption="This page", text=shlex.join(page)))
    return tuple(snippets)


def _with_adversary(facts: Iterable[Facts], result: AuditResult) -> Iterator[Facts]:
    """The facts, with the adversary that scored the runs of a user's own training.

    Before its first run, such an audit knows only that values are scored as they are returned.
    """
    known = {"name": result.adversary}
    if result.threat_model is not None:
        known["threat model"] = result.threat_model.value
    for group in facts:
        if group.heading == "adversary":
            rows = tuple((name, known.get(name, value)) for name, value in group.rows)
            group = replace(group, rows=rows)
        yield group


def _tensors(result: AuditResult) -> Iterator[Facts]:
    """The test of each tensor, if the canaries were tested one by one."""
    tests = sorted(result.final.tensors.items(), key=lambda item: item[1].p_value)
    if tests:
        rows = tuple((name, f"{test.verdict}, p = {test.p_value:.2g}") for name, test in tests)
        yield Facts(heading="test of each tensor", rows=rows, compared=False)


def stored_page(record: AuditRecord) -> PageData:
    """The page of an audit with the bounds that were stored, without reading its scores.

    See also: `record_page`, which computes everything.
    """
    description, kept, bounds = Description.of(record), record.summary or {}, None
    done = description.runs_in(record)
    asked = int(kept.get("asked", description.runs))
    if record.finished:
        bounds = _stored_bound(kept["lower"]), _stored_bound(kept["upper"])
        done = int(kept.get("runs", done))
    return PageData(
        title=record.name or description.title,
        subtitle=description.title,
        identity=record.id,
        verdict=kept["verdict"] if bounds else "unfinished",
        sentence=kept["sentence"] if bounds else "Unfinished: runs are missing.",
        evidence=None,
        stored=bounds,
        runs=(done, max(done, asked)),
        progress=None if bounds else progress(done, asked),
        facts=tuple(facts_of(description)),
    )


def _stored_bound(plain: Mapping[str, Any]) -> Bound:
    return Bound(
        epsilon=float(plain["epsilon"]),
        delta=plain["delta"],
        side=plain["side"],
        method=plain["method"],
        confidence=plain["confidence"],
        assumptions=tuple(plain["assumptions"]),
        sample_size=plain["sample_size"],
        mu=plain.get("mu"),
    )


def _subtitle(result: AuditResult) -> str:
    insertion = result.description.insertion
    if insertion is None:
        return result.title
    period = insertion.period
    every = "every step" if period == 1 else f"every {period} steps"
    if period > 1 and insertion.phase == "last":
        every = f"the last of every {period} steps"
    canary = f"a canary at {every} of {result.final.horizon:,}"
    # Without a name the title says the rest already.
    return f"{result.title}, {canary}" if result.name else canary.capitalize()


def _notices(result: AuditResult) -> Iterator[str]:
    test = result.test
    if result.stopped_at is not None and result.stopped_at < result.asked:
        yield (
            f"The audit stopped after {result.stopped_at:,} of at most {result.asked:,} runs, when "
            "the violation was proven."
        )
    if test is not None and test.anytime:
        yield WATCHED
    if test is not None and math.isinf(result.least_upper.epsilon):
        yield (
            f"The claim, {test.claim.description}, says nothing at delta = {result.delta:g}: there "
            "is no epsilon to compare the bounds with. The verdict is about the part of the claim "
            "that does say something."
        )


def _horizons(result: AuditResult) -> tuple[Horizon, ...]:
    """The bounds at every horizon, if there are several."""
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
