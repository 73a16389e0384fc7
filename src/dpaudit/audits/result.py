"""What an audit gives back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from dpaudit.audits.assessment import Assessment, Verdict
from dpaudit.errors import InvalidInput
from dpaudit.privacy import Bounds
from dpaudit.report.summary import sentence, summary, unfinished
from dpaudit.scores import Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class AuditResult:
    """Lower and upper bounds of an audit, the scores they were read from, and how it was done.

    See also: `dpaudit.audit`, which makes one.

    Arguments:
        audit: The identity of the audit in a store: 16 hexadecimal digits.
        name: What the user called it, if anything.
        configuration: Everything that decided the scores.
        horizons: One assessment for each number of steps asked for; the last is the whole training.
        runs: How many trainings the scores come from.
        canaries: How many canaries each of them had a coin for.
        seconds: How long this call took.
        device: On what.
        resumed: How many of the runs were in the store already.
        notices: What the user should know besides.
    """

    audit: str
    name: str | None
    configuration: Mapping[str, Any] = field(repr=False)
    horizons: tuple[Assessment, ...] = field(repr=False)
    runs: int
    canaries: int
    seconds: float
    device: str
    resumed: int = 0
    notices: tuple[str, ...] = ()

    @property
    def final(self) -> Assessment:
        """The assessment of the whole training."""
        return self.horizons[-1]

    @property
    def lower(self) -> Bounds:
        """What the scores prove, by several methods; ``lower["gaussian-dp"]`` is the paper's."""
        return self.final.lower

    @property
    def upper(self) -> Bounds:
        """What the accountants promise."""
        return self.final.upper

    @property
    def scores(self) -> Scores:
        """The scores at the end of training."""
        return self.final.scores

    @property
    def verdict(self) -> Verdict | Literal["unfinished"]:
        """What it comes to, in a word; while runs are missing there is none yet."""
        return self.final.verdict if self.finished else "unfinished"

    @property
    def sentence(self) -> str:
        """What it comes to, in a sentence."""
        asked = int(self.configuration["runs"])
        return sentence(self.final) if self.finished else unfinished(self.final, self.runs, asked)

    @property
    def finished(self) -> bool:
        """Whether all runs were played."""
        return self.runs >= int(self.configuration["runs"])

    def at(self, steps: int) -> Assessment:
        """The assessment of a training that stops after ``steps``."""
        for assessment in self.horizons:
            if assessment.horizon == steps:
                return assessment
        known = ", ".join(str(assessment.horizon) for assessment in self.horizons)
        raise InvalidInput(f"steps must be one of the audit's horizons ({known}), got {steps!r}")

    def summary(self) -> str:
        """A few lines of text: upper bound, lower bounds with assumptions, and the sentence."""
        return summary(self.final, self.sentence)

    def plot(self) -> Figure:
        """The scores of both worlds, and the trade-off curve beside the promised one."""
        from dpaudit.report.figures import audit_figure

        return audit_figure(self.final, title=self.title)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the result as one HTML page that needs no network; see `dpaudit.report`."""
        from dpaudit.report import write_page

        return write_page(self, path)

    @property
    def title(self) -> str:
        """What was audited and by whom, in a few words."""
        training, adversary = self.configuration["mechanism"], self.configuration["adversary"]
        return f"{training['name']} by {adversary['name']}"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, without the scores: what ``--json`` prints."""
        whole = self.final.to_dict()
        return {
            "audit": self.audit,
            "name": self.name,
            **whole,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "runs": self.runs,
            "canaries": self.canaries,
            "seconds": round(self.seconds, 3),
            "device": self.device,
            "resumed_runs": self.resumed,
            "notices": list(self.notices),
            "horizons": [assessment.to_dict() for assessment in self.horizons[:-1]],
            "configuration": self.configuration,
        }
