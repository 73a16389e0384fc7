"""The result of an audit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from dpaudit._numbers import decimals
from dpaudit.audits.assessment import Assessment, AuditVerdict
from dpaudit.audits.description import Description
from dpaudit.audits.evidence import collect_evidence
from dpaudit.audits.wording import sentence, summary, unfinished
from dpaudit.claims import ClaimTest
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import ProvenCurve
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.report.data import MOST_THRESHOLDS, AuditEvidence, PageData
from dpaudit.report.words import claim_notes, power_in_words
from dpaudit.scores import Failure, Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AuditResult:
    """Lower and upper bounds of an audit, the verdict, and the scores behind them.

    See also: `dpaudit.audit` and `dpaudit.audit_training`, which return one.

    Arguments:
        audit: The identity of the audit in a store: 16 hexadecimal digits.
        name: The name of the audit, if it has one.
        description: Everything that decided the scores.
        horizons: One assessment for each number of steps asked for; the last is the whole training.
        runs: Number of trainings that the verdict uses, failed ones included.
        asked: Number of trainings that were asked for.
        failures: The runs that failed, each with its traceback.
        adversary: What scored the trainings.
        stopped_at: The number of runs after which a violation was proven, if the audit was asked
            to stop then; otherwise `None`.
        seconds: Duration of this call.
        device: Device used.
        resumed: Number of runs that were in the store already.
        notices: Further remarks for the user.
    """

    audit: str
    name: str | None
    description: Description
    horizons: tuple[Assessment, ...]
    runs: int
    asked: int
    failures: tuple[Failure, ...] = ()
    adversary: str = ""
    stopped_at: int | None = None
    seconds: float = 0.0
    device: str = ""
    resumed: int = 0
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
    def notes(self) -> tuple[str, ...]:
        """The notes of the claim's test and the notices."""
        return (*(() if self.test is None else claim_notes(self.test)), *self.notices)

    @cached_property
    def sentence(self) -> str:
        """The verdict in a few sentences."""
        if not self.finished:
            return unfinished(self.final, self.runs, self.asked)
        return sentence(self.final, runs=self.runs)

    @property
    def title(self) -> str:
        """The training and the adversary in a few words."""
        if self.description.training is None:
            return self.description.title
        return f"{self.training} scored by {self.adversary}"

    def at(self, steps: int) -> Assessment:
        """The assessment of a training that stops after ``steps``."""
        for assessment in self.horizons:
            if assessment.horizon == steps:
                return assessment
        known = ", ".join(str(assessment.horizon) for assessment in self.horizons)
        raise InvalidInput(f"steps must be one of the audit's horizons ({known}), got {steps!r}")

    def summary(self) -> str:
        """Bounds with their assumptions, the test, its power and the verdict, as text."""
        if self.description.training is None:
            return summary(self.final, self.sentence)
        seen = self.threat_model
        sees = "unknown: state what your score was made of" if seen is None else seen.value
        lines = [
            f"training  {self.training}",
            f"adversary {self.adversary}; threat model {sees}",
            f"runs      {self.runs:,} ({len(self.failures):,} failed), {len(self.scores):,} scores",
            *(f"note      {notice}" for notice in self.notices),
        ]
        return "\n".join([*lines, summary(self.final, self.sentence)])

    def evidence(
        self, *, most_thresholds: int = MOST_THRESHOLDS, with_growth: bool = True
    ) -> AuditEvidence:
        """The numbers behind figures and pages; see `dpaudit.report.figures`.

        Arguments:
            most_thresholds: Largest number of thresholds to include.
            with_growth: Whether to compute the bound against the number of runs.
        """
        found = self.final
        return collect_evidence(
            found.scores,
            lower=found.lower,
            leading=found.leading,
            upper=found.upper.bounds,
            claim=None if found.test is None else found.test.claim,
            # A test for all runs says nothing about some of them.
            test=found.test if self.finished else None,
            power=power_in_words(found.power) if found.power and self.finished else "",
            seed=self.description.seed,
            most_thresholds=most_thresholds,
            with_growth=with_growth,
        )

    def page(self, *, most_thresholds: int = MOST_THRESHOLDS) -> PageData:
        """The data of the report page."""
        from dpaudit.audits.pages import result_page

        return result_page(self, most_thresholds=most_thresholds)

    def plot(self) -> Figure:
        """The scores, the trade-off function beside the claimed one, and the bounds."""
        from dpaudit.report.figures import audit_figure

        return audit_figure(self.evidence(with_growth=False), title=self.title)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the result as one self-contained HTML page; see `dpaudit.report`."""
        from dpaudit.report import write_page

        return write_page(self.page(), path)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, without the scores: what ``--json`` prints."""
        test = self.test
        return {
            "audit": self.audit,
            "name": self.name,
            "training": self.training,
            "adversary": self.adversary,
            "threat_model": None if self.threat_model is None else self.threat_model.value,
            **self.final.to_dict(),
            "verdict": self.verdict,
            "sentence": self.sentence,
            "p_value": None if test is None else test.p_value,
            "e_value": None if test is None else test.e_value,
            "confidence": self.leading.confidence,
            "claimed": self.least_upper.to_dict(),
            "assumptions": [] if test is None else list(test.assumptions),
            "runs": self.runs,
            "runs_asked": self.asked,
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
            "configuration": {**self.configuration, **self._as_in_0_1()},
        }

    def _as_in_0_1(self) -> dict[str, Any]:
        """Settings of a user's training that ``--json`` of dpaudit 0.1 had outside `mechanism`."""
        training = self.description.training
        return {} if training is None else {"canary": training.canary, "initial": training.initial}

    def stored(self) -> dict[str, Any]:
        """What the store keeps beside the scores: enough for ``dpaudit list``."""
        return {
            "verdict": self.verdict,
            "tightness": self.final.tightness,
            "sentence": self.sentence,
            "delta": self.delta,
            "lower": self.leading.to_dict(),
            "upper": self.least_upper.to_dict(),
            "adversary": self.adversary,
            "covers": self.final.covers,
            "runs": self.runs,
            "asked": self.asked,
            "stopped_at": self.stopped_at,
            "seconds": round(self.seconds, 3),
            "device": self.device,
        }

    def _repr_html_(self) -> str:
        from dpaudit.report.notebook import result_html

        return result_html(
            title=self.title,
            verdict=self.verdict,
            sentence=self.sentence,
            bounds=(self.least_upper, *self.lower),
        )

    def __repr__(self) -> str:
        lower, upper = self.leading, self.least_upper
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"AuditResult({self.verdict}, epsilon >= {decimals(lower.epsilon, 2)} shown, <= "
            f"{decimals(upper.epsilon, 2)} claimed, delta = {lower.delta:g}, "
            f"{self.runs:,} runs{failed})"
        )
