"""The result of an audit: from its scores, and from them alone."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit._numbers import counted, decimals
from dpaudit.audits.assessment import (
    Assessment,
    AuditVerdict,
    assess,
    constant_scores,
    failure_notes,
    watcher_of,
)
from dpaudit.audits.identity import Description, Question
from dpaudit.claims import STRICT, Claim, ClaimTest
from dpaudit.errors import InvalidInput, StoreError, TrainingFailed
from dpaudit.lower_bounds import ProvenCurve
from dpaudit.lower_bounds.diagnostics import with_failures
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Scores
from dpaudit.scores.store import scores_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpaudit.audits.evidence import AuditEvidence
    from dpaudit.claims.risk import RiskTerms
    from dpaudit.report import PageData
    from dpaudit.report.words import Statement

THREAT_MODELS: Mapping[str, ThreatModel] = {
    "parameters": ThreatModel.HIDDEN_STATE,
    "predictions": ThreatModel.BLACK_BOX,
    "private gradients": ThreatModel.STANDARD,
}
"""What an adversary of a user's training sees; of others only the user knows."""


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AuditResult:
    """Lower and upper bounds of an audit, the verdict, and the scores behind them.

    See also: `dpaudit.audit`, which returns one; `read_result`, which reads one from a store.

    Arguments:
        audit: The identity of the audit in a store: 16 hexadecimal digits.
        name: The name of the audit, if it has one.
        description: Everything that decided the scores.
        question: What was asked of them.
        horizons: One assessment for each number of steps asked for; the last is the whole training.
        runs: Number of trainings that the bounds use, failed ones included.
        asked: Number of trainings that were asked for.
        fresh_runs: Number of further trainings that confirm or refute a suspicion.
        failures: The runs that failed, each with its traceback.
        adversary: What scored the trainings.
        stopped_at: The number of runs after which a violation was proven, if the audit was asked
            to stop then; otherwise `None`.
        seconds: Duration of this call.
        device: Device used.
        resumed: Number of runs that were in the store already.
        call: The command that was called; empty for a call in Python.
        advice: What would make an audit of this training stronger; empty if nothing was seen.
        notices: Further remarks for the user.
    """

    audit: str
    name: str | None
    description: Description
    question: Question
    horizons: tuple[Assessment, ...]
    runs: int
    asked: int
    fresh_runs: int = 0
    failures: tuple[Failure, ...] = ()
    adversary: str = ""
    stopped_at: int | None = None
    seconds: float = 0.0
    device: str = ""
    resumed: int = 0
    call: str = ""
    advice: str = ""
    notices: tuple[str, ...] = ()

    @property
    def final(self) -> Assessment:
        """The assessment of the whole training."""
        return self.horizons[-1]

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The description as plain data."""
        return self.description.to_dict()

    @property
    def canaries(self) -> int:
        """Canaries per run."""
        return self.description.canaries

    @property
    def training(self) -> str:
        """The name of the training."""
        return self.description.mechanism.name

    @property
    def threat_model(self) -> ThreatModel | None:
        """What the adversary sees; `None` if only the user knows."""
        return self.final.threat_model

    @property
    def lower(self) -> Bounds:
        """Lower bounds by several methods; ``lower["gaussian-dp"]`` is the paper's."""
        return self.final.lower

    @property
    def upper(self) -> Bounds:
        """The accountants' upper bounds, or the claimed one."""
        return self.final.upper

    @property
    def leading(self) -> Bound:
        """The lower bound that the verdict sentence names."""
        return self.final.leading

    @property
    def least_upper(self) -> Bound:
        """The smallest upper bound."""
        return self.final.least_upper

    @property
    def delta(self) -> float:
        """Delta at which the bounds are computed."""
        return self.leading.delta

    @property
    def test(self) -> ClaimTest | None:
        """The test of the claim; `None` if nothing is claimed."""
        return self.final.test

    @property
    def suspected(self) -> bool:
        """Whether the scores speak against the claim, and no fresh runs have confirmed it."""
        return self.test is not None and self.test.suspected

    @property
    def scores(self) -> Scores:
        """The scores at the end of training."""
        return self.final.scores

    @property
    def proven(self) -> ProvenCurve:
        """The error rates that the scores prove, at all thresholds at once."""
        return self.final.proven

    @property
    def finished(self) -> bool:
        """Whether all runs are done, or a violation ended the audit."""
        return self.runs >= self.asked or self.stopped_at is not None

    @property
    def verdict(self) -> AuditVerdict:
        """The verdict in one word."""
        return self.final.verdict if self.finished else "unfinished"

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon of the claim that was asked for, or else the smallest upper bound."""
        claim = self.question.claim
        return self.least_upper.epsilon if claim is None else claim.epsilon(self.delta)

    @property
    def called(self) -> str:
        """The command that was called, or the call in Python as far as it is known."""
        description, question = self.description, self.question
        if self.call or description.live:
            return self.call
        claim = "" if question.claim is None else f"claim={question.claim!r}, "
        return (
            f"dpaudit.audit({description.mechanism.name.rpartition(':')[2]}, ..., {claim}"
            f"runs={description.runs}, seed={description.seed}, delta={question.delta!r})"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the claim's test and the notices."""
        from dpaudit.report.words import claim_notes

        return (*(() if self.test is None else claim_notes(self.test)), *self.notices)

    @property
    def statement(self) -> Statement:
        """The result in words: verdict, claimed, shown, what it means, what to do next."""
        from dpaudit.report.words import statement

        return statement(self)

    @property
    def sentence(self) -> str:
        """The result in a few sentences."""
        return self.statement.sentence

    @property
    def title(self) -> str:
        """The training and the adversary in a few words."""
        return self.description.title_by(self.adversary)

    @cached_property
    def risk(self) -> tuple[RiskTerms, ...]:
        """What the claim allows and what was shown, for readers who do not think in epsilon."""
        from dpaudit.claims.risk import risk_terms

        return risk_terms(
            None if self.test is None else self.test.claim,
            with_failures(self.scores, self.failures),
            self.leading,
            fixed_sample=not self.description.until_violation,
        )

    def at(self, steps: int) -> Assessment:
        """The assessment of a training that stops after ``steps``."""
        for assessment in self.horizons:
            if assessment.horizon == steps:
                return assessment
        horizons = ", ".join(str(assessment.horizon) for assessment in self.horizons)
        raise InvalidInput(f"steps must be one of the audit's horizons ({horizons}), got {steps!r}")

    def summary(self, *, all_bounds: bool = False) -> str:
        """The result in at most twelve lines: what ``dpaudit audit`` prints.

        Arguments:
            all_bounds: Whether to add all bounds with their assumptions, the test and its power.
        """
        from dpaudit.report import words

        calls = ('result.report("audit.html")', "result.summary(all_bounds=True)")
        hidden = all_bounds or self.description.live  # what is not tested needs their lines
        lines = self.statement.page(() if hidden else calls)
        return "\n".join([*lines, "", *words.all_bounds(self)] if all_bounds else lines)

    def evidence(self, *, most_thresholds: int = 20_000) -> AuditEvidence:
        """The numbers behind figures and pages; see `dpaudit.report.figures`.

        Arguments:
            most_thresholds: Largest number of thresholds to include.
        """
        from dpaudit.audits.evidence import collect_evidence

        final = self.final
        return collect_evidence(
            final.scores,
            lower=final.lower,
            leading=final.leading,
            upper=final.upper.bounds,
            claim=None if final.test is None else final.test.claim,
            # A test for all runs says nothing about some of them.
            test=final.test if self.finished else None,
            most_thresholds=most_thresholds,
        )

    def page(self, *, most_thresholds: int = 20_000) -> PageData:
        """The data of the report page."""
        from dpaudit.report.pages import result_page

        return result_page(self, most_thresholds=most_thresholds)

    def plot(self) -> Figure:
        """The scores, the trade-off function beside the claimed one, and the bounds."""
        from dpaudit.report.figures import audit_figure

        return audit_figure(self.evidence(), title=self.title)

    def report(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the result as one self-contained HTML page; see `dpaudit.report.write_page`."""
        from dpaudit.report import write_page

        return write_page(self.page(), path, overwrite=overwrite)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, without the scores: what ``--json`` prints."""
        from dpaudit.report.words import power_dict

        test, statement = self.test, self.statement
        claimed = None
        if test is not None:
            epsilon = self.claimed_epsilon
            claimed = {
                "claim": test.claim.description,
                "epsilon": epsilon if math.isfinite(epsilon) else "inf",
                "delta": self.delta,
            }
        final = self.final.to_dict()
        return {
            "verdict": self.verdict,
            "suspected": self.suspected,
            "claimed": claimed,
            "shown": self.leading.to_dict(),
            "meaning": list(statement.meaning),
            "advice": statement.advice,
            "sentence": statement.sentence,
            "audit": self.audit,
            "name": self.name,
            "training": self.training,
            "adversary": self.adversary,
            "threat_model": None if self.threat_model is None else self.threat_model.value,
            **{key: value for key, value in final.items() if key != "verdict"},
            "power": None if self.final.power is None else power_dict(self.final.power),
            "p_value": None if test is None else test.p_value,
            "e_value": None if test is None else test.e_value,
            "confidence": self.leading.confidence,
            "least_upper": self.least_upper.to_dict(),
            "assumptions": [] if test is None else list(test.assumptions),
            "risk": [term.to_dict() for term in self.risk],
            "runs": self.runs,
            "runs_asked": self.asked,
            "fresh_runs": self.fresh_runs,
            "canaries": self.canaries,
            "scores": len(self.scores),
            "failures": [failure.to_dict() for failure in self.failures],
            "stopped_at": self.stopped_at,
            "seconds": round(self.seconds, 3),
            "device": self.device,
            "resumed_runs": self.resumed,
            "notices": list(self.notices),
            "notes": list(self.notes),
            "horizons": [assessment.to_dict() for assessment in self.horizons[:-1]],
            "call": self.called,
            "configuration": self.configuration,
        }

    def stored(self) -> dict[str, Any]:
        """What the store keeps beside the scores: enough for ``dpaudit list``."""
        return {
            "verdict": self.verdict,
            "suspected": self.suspected,
            "tightness": self.final.tightness,
            "delta": self.delta,
            "lower": self.leading.to_dict(),
            "upper": self.least_upper.to_dict(),
            "adversary": self.adversary,
            "covers": self.final.covers,
            "runs": self.runs,
            "asked": self.asked,
            "fresh_runs": self.fresh_runs,
            "stopped_at": self.stopped_at,
            "seconds": round(self.seconds, 3),
            "device": self.device,
        }

    def _repr_html_(self) -> str:
        from dpaudit.report.notebook import result_html

        return result_html(
            title=self.title,
            statement=self.statement,
            bounds=(self.least_upper, *self.lower),
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        lower, claimed = self.leading, self.claimed_epsilon
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"AuditResult({self.verdict}, claimed epsilon <= {decimals(claimed, 2)}, shown "
            f"epsilon >= {decimals(lower.epsilon, 2)}, delta = {lower.delta:g}, "
            f"{counted(self.runs, 'run')}{failed})"
        )


def read_result(
    record: AuditRecord,
    *,
    claim: Claim | None = None,
    delta: float | None = None,
    confidence: float | None = None,
    detect: float | None = None,
    power: float | None = None,
    resumed: int = 0,
) -> AuditResult:
    """What the scores of a stored audit show; while runs are missing, what they show so far.

    Arguments:
        record: The audit.
        claim: The claim to test; by default that of the audit. Another one can be suspected or
            refuted at p <= 0.001, since no fresh runs were played for it.
        delta: Delta at which all bounds are computed; by default that of the audit.
        confidence: Confidence of each lower bound; by default that of the audit.
        detect: Noise of this fraction of the claimed noise must be detectable for ``consistent``.
        power: Probability with which such noise must be detected.
        resumed: Number of runs that were in the store before.
    """
    description, facts, tiles = Description.of(record), record.summary, record.tiles()
    asked: dict[str, Any] = {"claim": claim, "delta": delta, "confidence": confidence}
    asked |= {"detect": detect, "power": power}
    question = Question.from_dict(facts.get("question", {}))
    question = replace(question, **{key: v for key, v in asked.items() if v is not None})
    if not tiles:
        raise StoreError(
            f"audit {record.label} has no scores yet: it was stopped before its first runs were "
            "stored; repeat the command that started it to resume it"
        )
    return result_of(
        description,
        question,
        tiles.values(),
        record.tiles(1).values(),
        facts,
        other_claim=claim is not None,
        audit=record.id,
        name=record.name,
        device=", ".join(dict.fromkeys(session["device"] for session in record.versions)),
        resumed=resumed,
    )


def result_of(
    description: Description,
    question: Question,
    tiles: Iterable[ScoreBlock | Failure],
    fresh: Iterable[ScoreBlock | Failure],
    facts: Mapping[str, Any],
    *,
    other_claim: bool = False,
    audit: str,
    name: str | None,
    device: str,
    resumed: int,
) -> AuditResult:
    """What the scores of an audit show; while runs are missing, what they show so far."""
    first, second = list(tiles), [] if other_claim or not question.confirm else list(fresh)
    policy = STRICT if other_claim and question.confirm else None
    tables, fresh_tables = scores_of(first) or {0: Scores.concat([])}, scores_of(second)
    watcher = watcher_of(description, question, first)
    stopped_at = watcher.runs if watcher is not None and watcher.refuted else None
    used = description.runs if stopped_at is None else stopped_at
    failures = tuple(
        outcome for outcome in first if isinstance(outcome, Failure) and outcome.run < used
    )
    fresh_failures = tuple(outcome for outcome in second if isinstance(outcome, Failure))
    sample, horizons = description.sample(1), tuple(tables)
    live = facts.get("live", {})
    # A single scoring rule is known from the description; otherwise the first training decided.
    adversary = str(facts.get("adversary") or description.adversary.name)
    assessments, doubts, played = [], tuple(facts.get("doubts", ())), 0
    for horizon, table in tables.items():
        scores = table if stopped_at is None else table.where(table.run < used)
        _check_both_groups(scores, failures)
        counted = _counted(audit, scores, failures, used)
        both: tuple[Scores, Sequence[Failure]] | None = None
        if horizon in fresh_tables:
            played = _counted(audit, fresh_tables[horizon], fresh_failures, sample.runs)
            both = (fresh_tables[horizon], fresh_failures) if played == sample.runs else None
        assessments.append(
            assess(
                description,
                question,
                scores,
                horizon=horizon,
                failures=failures,
                fresh=both,
                watcher=watcher,
                policy=policy,
                threat_model=THREAT_MODELS.get(adversary),
                every_accountant=horizon == horizons[-1],
                doubts=(*(doubts or constant_scores(scores)), *facts.get("broken", ())),
                covers=str(facts.get("covers", "")),
                e_value=None if other_claim else live.get("e_value"),
                history=live.get("history"),
                alike=bool(facts.get("alike")),
            )
        )
    final = assessments[-1].scores
    return AuditResult(
        audit=audit,
        name=name,
        description=description,
        question=question,
        horizons=tuple(assessments),
        runs=counted,
        asked=description.runs,
        fresh_runs=played,
        failures=failures,
        adversary=adversary,
        stopped_at=stopped_at,
        seconds=float(facts.get("seconds", 0.0)),
        device=device,
        resumed=resumed,
        call=str(facts.get("call", "")),
        advice=str(facts.get("advice", "")),
        notices=(
            *live.get("notices", ()),
            *failure_notes(final, failures),
        ),
    )


def _counted(audit: str, scores: Scores, failures: Sequence[Failure], most: int) -> int:
    """The number of runs with a score or a failure; `StoreError` if a run counts twice."""
    count = scores.runs + len(failures)
    failed = {failure.run for failure in failures}
    if count > most or (failed and np.isin(scores.run, list(failed)).any()):
        raise StoreError(
            f"audit {audit[:8]} has {scores.runs:,} runs with scores and {len(failures):,} failed "
            f"runs, but {most:,} in all; its store is damaged"
        )
    return count


def _check_both_groups(scores: Scores, failures: Sequence[Failure]) -> None:
    """Raise if no run with the canary, or none without it, has a score."""
    inserted = int(scores.inserted.sum())
    if 0 < inserted < len(scores):
        return
    which = "with" if inserted == 0 else "without"
    problem = f"no run {which} the canary gave a score, and an audit compares runs with and without"
    if failures:
        last = failures[-1]
        raise TrainingFailed(
            f"{problem}; {len(failures)} runs failed, the last (run {last.run}) with {last.error}"
            f"\n{last.traceback}"
        )
    raise TrainingFailed(f"{problem}; increase runs")
