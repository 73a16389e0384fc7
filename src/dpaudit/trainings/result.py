"""What comes out of the audit of a user's own training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from dpaudit.claims import ClaimTest, Verdict
from dpaudit.lower_bounds import ProvenCurve, proven_curve
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.scores import Failure, Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpaudit.audits import Assessment

LEADING = ("anytime-gaussian-dp", "gaussian-dp")
"""The lower bound that the sentence speaks of, the first of these that is there."""


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingAudit:
    """The test of a training's promise, the bounds its scores prove, and the scores themselves.

    See also: `dpaudit.audit_training`, which makes one.

    Arguments:
        audit: The identity of the audit in a store: 16 hexadecimal digits.
        name: What the user called it, if anything.
        training: The training function, by name.
        adversary: What scored the trainings: ``"score"`` (the training itself), ``"parameters"``,
            ``"predictions"`` or ``"own"`` (a function of the user's).
        threat_model: What that adversary sees; `None` where only the user knows.
        test: The test of the claim; its verdict is the audit's.
        scores: The scores of the runs that succeeded.
        lower: What they prove, by several methods, each at its own confidence.
        delta: Of the lower bounds.
        failures: The runs that failed, each with its traceback.
        runs: How many trainings the verdict rests on, failed ones included.
        canaries: How many canaries each training had a coin for.
        stopped_at: The number of runs after which a violation was proven, where the audit was
            asked to stop then; `None` if it was not asked, or found none.
        notes: What the reader should know besides.
        configuration: Everything that decided the scores.
        seconds: How long this call took.
        resumed: How many of the runs were in the store already.
    """

    audit: str
    name: str | None
    training: str
    adversary: str
    threat_model: ThreatModel | None
    test: ClaimTest
    scores: Scores
    lower: Bounds
    delta: float
    failures: tuple[Failure, ...]
    runs: int
    canaries: int
    stopped_at: int | None = None
    notes: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float = 0.0
    resumed: int = 0

    @property
    def verdict(self) -> Verdict:
        """What the test of the claim says: a violation, consistent, or inconclusive."""
        return self.test.verdict

    @property
    def leading(self) -> Bound:
        """The lower bound that the sentence speaks of."""
        named = [bound for name in LEADING for bound in self.lower if bound.method == name]
        return named[0] if named else self.lower.bounds[0]

    @property
    def least_upper(self) -> Bound:
        """What is claimed, as a bound from above."""
        return Bound(
            epsilon=self.test.claim.epsilon(self.delta),
            delta=self.delta,
            side="upper",
            method="claimed",
            assumptions=self.test.claim.assumptions,
        )

    @property
    def upper(self) -> Bounds:
        """The claim as the only bound from above: dpaudit does not know the training's settings."""
        return Bounds(bounds=(self.least_upper,))

    @property
    def proven(self) -> ProvenCurve:
        """The error rates that the scores prove, at every threshold at once."""
        return proven_curve(self.scores, confidence=self.test.confidence)

    @property
    def sentence(self) -> str:
        """What it comes to, in a sentence or two."""
        test = self.test
        trainings, do = (
            ("1 training", "does")
            if self.runs == 1
            else (
                f"{self.runs:,} trainings",
                "do",
            )
        )
        assumed = "".join(f" This assumes that {text}." for text in test.claim.assumptions)
        leading = self.leading
        shown = (
            f"epsilon >= {leading.epsilon:.2f} at delta = {leading.delta:g} ({leading.method}, "
            f"{100 * test.confidence:g} % confidence)"
        )
        match test.verdict:
            case "violation":
                return (
                    f"Violation: a training that keeps its claim, {test.claim.description}, gives "
                    f"the scores of {trainings} such as these with probability at most "
                    f"{test.p_value:.2g}; look for a bug in the training or in its "
                    f"accounting.{assumed}"
                )
            case "consistent":
                return (
                    f"Consistent: {trainings} {do} not contradict the claim, "
                    f"{test.claim.description} (p = {test.p_value:.2g}); shown: {shown}. "
                    f"No audit proves a claim true.{assumed}"
                )
            case "inconclusive":
                return (
                    f"Inconclusive: {trainings} could not have refuted the claim, "
                    f"{test.claim.description}, or failed too often to; shown: {shown}."
                    f"{assumed}"
                )

    def summary(self) -> str:
        """The claim, the lower bounds with what each assumes, notes and the sentence, as text."""
        seen = (
            "unknown: state what your score was made of"
            if self.threat_model is None
            else (self.threat_model.value)
        )
        wealth = "" if self.test.e_value is None else f", e = {self.test.e_value:.3g}"
        lines = [
            f"training      {self.training}",
            f"claim         {self.test.claim.description}",
            f"adversary     {self.adversary}; threat model {seen}",
            f"runs          {self.runs:,} ({len(self.failures):,} failed), {len(self.scores):,} "
            "scores",
            f"test          {self.test.verdict}, p = {self.test.p_value:.3g}{wealth}",
        ]
        for bound in self.lower:
            lines.append(f"lower bound   epsilon >= {bound.epsilon:8.4f}  {_method(bound)}")
            lines += [f"                  assumes: {text}" for text in bound.assumptions]
        lines += [
            f"lower bound   {missing.method}: no number. {missing.reason}"
            for missing in self.lower.unavailable
        ]
        lines += [f"note          {note}" for note in (*self.test.notes, *self.notes)]
        return "\n".join([*lines, "", self.sentence])

    def plot(self) -> Figure:
        """The scores of both worlds, and the trade-off curve beside the claimed one."""
        from dpaudit.report.figures import audit_figure

        # It has every part of an assessment that the figure draws.
        return audit_figure(cast("Assessment", self), title=self.training)

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"TrainingAudit({self.test!r}, {self.runs:,} runs{failed})"

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the result as one HTML page that needs no network; see `dpaudit.report`."""
        from dpaudit.report import write_page

        return write_page(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, without the scores: what ``--json`` prints."""
        return {
            "audit": self.audit,
            "name": self.name,
            "training": self.training,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "p_value": self.test.p_value,
            "e_value": self.test.e_value,
            "confidence": self.test.confidence,
            "claim": self.test.to_dict(),
            "claimed": self.least_upper.to_dict(),
            "lower": [bound.to_dict() for bound in self.lower],
            "unavailable": [missing.to_dict() for missing in self.lower.unavailable],
            "assumptions": list(self.test.assumptions),
            "adversary": self.adversary,
            "threat_model": None if self.threat_model is None else self.threat_model.value,
            "runs": self.runs,
            "canaries": self.canaries,
            "scores": len(self.scores),
            "failures": [failure.to_dict() for failure in self.failures],
            "stopped_at": self.stopped_at,
            "notes": [*self.test.notes, *self.notes],
            "seconds": round(self.seconds, 3),
            "resumed_runs": self.resumed,
            "configuration": dict(self.configuration),
        }


def _method(bound: Bound) -> str:
    rule = bound.details.get("threshold_rule")
    return f"{bound.method} ({rule})" if rule else bound.method
