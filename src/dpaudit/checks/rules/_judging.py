"""Compare a contribution with that of a gradient of norm C in the same direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.subject import StepSubject
from dpaudit.checks.units import Response, Unit, unit_along

COVERED = "More than C, but the noise covers it: it is {:.3g} times as large as claimed."


@final
@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a gradient contributed, in multiples of C.

    Arguments:
        length: Norm of the gradient before clipping, in multiples of C.
        size: Contribution; infinite where the output was not finite.
        blur: Error of ``size``.
        slack: By how much a contribution may exceed C.
    """

    length: float
    size: float
    blur: float
    slack: float

    @property
    def excess(self) -> float:
        """By how much it exceeds what is allowed, after subtracting all errors."""
        return self.size - self.blur - (1 + self.slack)

    def covered_by(self, noise: float) -> bool:
        """Whether noise that is larger by this factor hides the contribution all the same."""
        return np.isfinite(self.size) and self.size - self.blur <= 1.03 * noise

    @property
    def words(self) -> str:
        """The size, with its error where that matters."""
        if not np.isfinite(self.size):
            return "not a number"
        return f"{self.size:.4g} C" + (f" ± {self.blur:.2g} C" if self.blur > 1e-3 else "")

    @property
    def allowed(self) -> str:
        """The allowed size, in words."""
        return f"at most {1 + self.slack:.4g} C"


def contribution(
    measured: Measurements, gradient: Array, unit: Unit | None = None
) -> Contribution | None:
    """Measure what a gradient contributes; `None` if there is nothing to compare it with."""
    unit = unit_along(measured, gradient) if unit is None else unit
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
    measured: Measurements,
    worst: Contribution | None,
    *,
    broken: str,
    passed: str = "",
    seen_in: str = "",
) -> Finding:
    """The finding about the largest contribution."""
    if worst is None:
        return rule.unknown("Rounding hides the contributions of such gradients.")
    seen = {"measured": worst.words, "allowed": worst.allowed}
    if worst.excess > 0:
        if worst.covered_by(measured.cover):
            return rule.passed(explanation=COVERED.format(measured.cover), **seen)
        return rule.broken(broken, seen_in=seen_in, **seen)
    if worst.blur > 0.5:
        return rule.unknown("Rounding or noise hides contributions of this size.", **seen)
    return rule.passed(explanation=passed, **seen)


def adapts(measured: Measurements) -> bool:
    """Whether the first step reacts to gradients as an adaptive optimizer does.

    With clipping, the effect is in proportion to short gradients. With automatic clipping, it is
    alike for gradients of all lengths. Otherwise a step of Adam, RMSprop or the sign hides it.
    """
    clip_norm = measured.subject.clip_norm
    for gradient in (measured.along_axis, measured.dense):
        tiny, short, half, long = (
            measured.response(gradient(length * clip_norm)).size for length in (0.01, 0.1, 0.5, 10)
        )
        proportional = _near(50 * tiny, half) and _near(5 * short, half) and _near(2 * half, long)
        if not proportional and not (_near(short, long) and _near(half, long)):
            return True
    return False


def _near(one: float, other: float) -> bool:
    return other < 1.5 * one and one < 1.5 * other


def many_shapes(measured: Measurements, *, lengths: Array) -> list[Array]:
    """Gradients of many shapes, always the same; none where each would cost a training."""
    if not isinstance(measured.subject, StepSubject) or not measured.repeatable:
        return []
    random = np.random.default_rng(11)
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = []
    for length in lengths:
        entries = random.standard_normal(parameters) * 10.0 ** random.uniform(-6, 0, parameters)
        entries *= random.random(parameters) < random.choice([0.02, 0.3, 1.0])
        entries[random.integers(parameters)] += 1.0
        gradients.append(entries * (length * clip_norm / np.linalg.norm(entries)))
    return gradients
