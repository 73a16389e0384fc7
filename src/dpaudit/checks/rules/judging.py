"""How a contribution is judged: against what one of norm C does in the same direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.units import Response, Unit


@final
@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a gradient contributed, in multiples of C.

    Arguments:
        length: The gradient's norm before clipping.
        size: What it contributed; infinite where the output was not finite.
        blur: Error of ``size``.
        slack: By how much a contribution may exceed C.
    """

    length: float
    size: float
    blur: float
    slack: float

    @property
    def excess(self) -> float:
        """By how much it is more than allowed, all errors granted."""
        return self.size - self.blur - (1 + self.slack)

    @property
    def words(self) -> str:
        """The size, with its error where that matters."""
        if not np.isfinite(self.size):
            return "not a number"
        return f"{self.size:.4g} C" + (f" ± {self.blur:.2g} C" if self.blur > 1e-3 else "")

    @property
    def allowed(self) -> str:
        """What would have been right."""
        return f"at most {1 + self.slack:.4g} C"


def contribution(
    measured: Measurements, gradient: Array, unit: Unit | None = None
) -> Contribution | None:
    """Measure what a gradient contributes; `None` where there is nothing to compare with."""
    unit = measured.unit_along(gradient) if unit is None else unit
    if not unit.known:
        return None
    seen: Response = measured.response(gradient)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(gradient)) / measured.subject.clip_norm
    size = seen.size / unit.size
    blur = (seen.error + size * unit.error) / unit.size if seen.finite else 0.0
    return Contribution(length=length, size=size, blur=blur, slack=measured.slack)


def largest(contributions: Iterable[Contribution | None]) -> Contribution | None:
    """The one that exceeds C most."""
    known = [one for one in contributions if one is not None]
    return max(known, key=lambda one: one.excess) if known else None


def judged(
    rule: Rule,
    worst: Contribution | None,
    *,
    broken: str,
    passed: str = "",
    seen_in: str = "",
) -> Finding:
    """The finding about the largest contribution."""
    if worst is None:
        reason = "Rounding hides the contributions of such gradients."
        return Finding(rule=rule, verdict="could not tell", explanation=reason)
    told = {"measured": worst.words, "allowed": worst.allowed}
    if worst.excess > 0:
        return Finding(rule=rule, verdict="broken", explanation=broken, seen_in=seen_in, **told)
    if worst.blur > 0.5:
        reason = "Rounding or noise hides contributions of this size."
        return Finding(rule=rule, verdict="could not tell", explanation=reason, **told)
    return Finding(rule=rule, verdict="passed", explanation=passed, **told)


def why_not(measured: Measurements) -> str:
    """The reason why contributions cannot be judged at all, or nothing."""
    if not measured.unit.known:
        return f"Nothing to compare with: {measured.unit.why_not}."
    if measured.subject.clipping_is_skipped():
        return (
            "The training inserts canary.clipped_sum(inserted), which is clipped already; to put "
            "its clipping to the test, insert canary.rows(inserted) as per-example gradients."
        )
    return ""


def hidden_by(found: dict[str, Finding], *rules: Rule) -> str:
    """The reason to look no further while a more basic rule is broken."""
    for rule in rules:
        if found[rule.name].verdict == "broken":
            return f"Put '{rule.name}' right first: it hides this one."
    return ""
