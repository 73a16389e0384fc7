"""What the page of an audit shows: from a result, from an audit in a store, or from elsewhere."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from dpaudit._numbers import duration
from dpaudit._version import __version__
from dpaudit.audits.curves import MOST_THRESHOLDS
from dpaudit.audits.evidence import AuditEvidence
from dpaudit.audits.identity import Description
from dpaudit.audits.result import AuditResult, read_result
from dpaudit.errors import InvalidScores, StoreError, TrainingFailed
from dpaudit.privacy import Bound
from dpaudit.report.words import Statement, statement

if TYPE_CHECKING:
    from dpaudit.audits.assessment import Assessment
    from dpaudit.checks.findings import CheckResult, Finding
    from dpaudit.claims import Claim
    from dpaudit.scores import AuditRecord


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """Settings under one heading."""

    heading: str
    rows: tuple[tuple[str, str], ...]
    compared: bool = True


@final
@dataclass(frozen=True, kw_only=True)
class Snippet:
    """A command, a file or a piece of Python to copy."""

    caption: str
    text: str


@final
@dataclass(frozen=True, kw_only=True)
class PageData:
    """One audit, ready to be rendered.

    See also: `dpaudit.report.write_page`; `dpaudit.AuditResult.page`, which makes one.

    Arguments:
        title: The name of the audit.
        subtitle: What was audited, and the adversary.
        identity: Its identity in a store, if it has one.
        verdict: The verdict in one word.
        sentence: The verdict in a sentence.
        evidence: Bounds and curves; `None` while there are too few scores for any.
        statement: The result in words; without one the page shows ``sentence``.
        runs: Number of trainings that the bounds use, and number asked for.
        unfinished: Whether runs are missing.
        notices: Further remarks for the reader.
        horizons: Assessments of shorter trainings, the whole training last; empty without horizons.
        findings: What a check found about each rule, where it is the page of a check.
        facts: Settings, seeds, versions.
        repeat: Commands and code that repeat the audit.
    """

    title: str
    subtitle: str
    identity: str
    verdict: str
    sentence: str
    evidence: AuditEvidence | None
    statement: Statement | None = None
    runs: tuple[int, int] = (0, 0)
    unfinished: bool = False
    notices: tuple[str, ...] = ()
    horizons: tuple[Assessment, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: tuple[Facts, ...] = ()
    repeat: tuple[Snippet, ...] = ()

    @property
    def lower(self) -> Bound | None:
        """The lower bound that the verdict sentence names; `None` while there is none."""
        return None if self.evidence is None else self.evidence.leading

    @property
    def upper(self) -> Bound | None:
        """The smallest finite upper bound; `None` if there is none."""
        return None if self.evidence is None else self.evidence.least_upper


WATCHED = (
    "The scores were tested as they came, and the audit would have stopped at a violation. The "
    "test of the claim and the anytime-valid bounds hold whenever the audit stops. The proven "
    "curves, the growth of the bound and the numbers at a threshold hold only for a number of runs "
    "that was fixed beforehand; here they are illustrations."
)


def check_page(result: CheckResult, *, title: str, call: str = "") -> PageData:
    """The page of a check: what is wrong first, then what was not tested, then what passed.

    See also: `write_page`; ``dpaudit check --page``.

    Arguments:
        result: The result of `dpaudit.check_training`, `dpaudit.check_pipeline` or another check.
        title: The name of what was checked.
        call: The command that repeats it, if there is one.
    """
    order = ("broken", "warning", "not tested", "passed", "left out")
    return PageData(
        title=title,
        subtitle=f"{result.calls:,} calls",
        identity="",
        verdict=result.verdict.replace(" ", "-"),
        sentence=result.summary,
        evidence=None,
        notices=(result.note,) if result.note else (),
        findings=tuple(sorted(result, key=lambda finding: order.index(finding.verdict))),
        facts=(Facts(heading="this check", rows=(("dpaudit", __version__),)),),
        repeat=(Snippet(caption="Command", text=call),) if call else (),
    )


def result_page(result: AuditResult, *, most_thresholds: int = MOST_THRESHOLDS) -> PageData:
    """The page of a result."""
    description = result.description
    this_call = (
        ("dpaudit", __version__),
        ("device", result.device),
        ("duration", duration(result.seconds)),
        ("failed runs", f"{len(result.failures):,}"),
        ("runs from the store", f"{result.resumed:,}"),
    )
    return PageData(
        title=result.name or result.title,
        subtitle=_subtitle(result),
        identity=result.audit,
        verdict=result.verdict,
        sentence=result.sentence,
        evidence=result.evidence(most_thresholds=most_thresholds),
        statement=statement(result),
        runs=(result.runs, max(result.runs, result.asked)),
        unfinished=not result.finished,
        notices=tuple(_notices(result)),
        horizons=result.horizons if len(result.horizons) > 1 else (),
        facts=(
            *_tensors(result),
            *_with_adversary(facts_of(description, result.question.claim), result),
            in_risk_terms(result),
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
) -> PageData:
    """The page of an audit in a store, finished or not."""
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
            unfinished=done < description.runs,
            facts=(*facts_of(description), sessions(record)),
        )
    page = result_page(result, most_thresholds=most_thresholds)
    facts = (*facts_of(description, result.question.claim), sessions(record))
    return replace(
        page,
        facts=(*_tensors(result), *_with_adversary(facts, result), in_risk_terms(result)),
        repeat=_repeat(result, store=record.store.path),
    )


def _repeat(result: AuditResult, store: str = "") -> tuple[Snippet, ...]:
    """The call that played the audit, and the command that writes its page."""
    snippets = [Snippet(caption="The call", text=result.called)] if result.called else []
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
    adversary = {"name": result.adversary}
    if result.threat_model is not None:
        adversary["threat model"] = result.threat_model.value
    for group in facts:
        if group.heading == "adversary":
            rows = tuple((name, adversary.get(name, value)) for name, value in group.rows)
            group = replace(group, rows=rows)
        yield group


def in_risk_terms(result: AuditResult) -> Facts:
    """What the claim allows at most and what was shown at least, without epsilon."""
    rows = []
    for term in result.risk:
        sign = "≤" if term.side == "upper" else "≥"
        who = "claimed" if term.side == "upper" else f"shown, {term.source}"
        rows.append((f"{who}: largest advantage", f"{sign} {term.advantage:.3g}"))
        for at in term.to_dict()["at"]:
            percent, odds = 100 * at["true_positive_rate"], at["posterior_odds"]
            rows.append(
                (
                    f"{who}: true positives at {100 * at['false_positive_rate']:g} % false ones",
                    f"{sign} {percent:.3g} %; odds after a positive {sign} {odds:.3g} : 1",
                )
            )
    return Facts(heading="in risk terms", rows=tuple(rows), compared=False)


def _tensors(result: AuditResult) -> Iterator[Facts]:
    """The test of each tensor, if the canaries were tested one by one."""
    tests = sorted(result.final.tensors.items(), key=lambda item: item[1].p_value)
    if tests:
        rows = tuple((name, f"{test.verdict}, p = {test.p_value:.2g}") for name, test in tests)
        yield Facts(heading="test of each tensor", rows=rows, compared=False)


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


def facts_of(description: Description, claim: Claim | None = None) -> Iterator[Facts]:
    """The settings in groups; single settings form a group of their own."""
    plain = description.to_dict()
    single = {key: value for key, value in plain.items() if not isinstance(value, Mapping)}
    parts = {key: value for key, value in plain.items() if isinstance(value, Mapping)}
    groups = {
        "mechanism" if description.training is None else "training": parts.pop("mechanism"),
        "adversary": parts.pop("adversary"),
        "insertion": parts.pop("insertion", {}),
        "game": single,
        **parts,
    }
    for heading, settings in groups.items():
        if settings:
            yield Facts(heading=_words(heading), rows=tuple(_rows(settings)))
    if claim is not None:
        yield Facts(heading="the claim", rows=tuple(_rows(_claim(claim.to_dict()))), compared=False)


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The claim in words: its settings, its sampling and what it assumes."""
    settings = dict(claim.get("settings") or {})
    settings.pop("history", None)  # which the claim says in words
    if "noise_multiplier" in settings:
        rate = settings.pop("sampling_rate", None)
        sampled = f"Poisson with rate {rate:g}" if rate else "none: every step may have the canary"
        settings["sampling"] = sampled
    assumed = "; ".join(claim.get("assumptions") or ()) or "nothing"
    return {"claim": claim["description"], **settings, "assumes": assumed}


def _rows(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in sorted(settings.items(), key=lambda item: item[0] != "name"):
        name = f"{prefix}{_words(key)}"
        if isinstance(value, Mapping):
            yield from _rows(value, f"{name}, ")
        else:
            yield name, _value(value)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _value(value: Any) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case list() | tuple():
            return ", ".join(_value(item) for item in value) or "none"
        case _:
            return str(value)


def sessions(record: AuditRecord) -> Facts:
    """When the audit was played, for how long, and with which software."""
    rows = [("created", record.created), ("finished", record.finished or "not yet")]
    summary = record.summary
    if isinstance(summary.get("seconds"), int | float):
        rows.append(("duration of the last call", duration(summary["seconds"])))
    versions = record.versions
    for key in dict.fromkeys(key for session in versions for key in session):
        values = dict.fromkeys(str(session[key]) for session in versions if key in session)
        rows.append((key, ", then ".join(values)))
    return Facts(heading="sessions", rows=tuple(rows), compared=False)
