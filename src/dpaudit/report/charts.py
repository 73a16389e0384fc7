"""Curves as places on a square of 100 by 100, with ticks: all that a template needs to draw them.

The square is stretched to whatever width a screen or sheet has, while text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpaudit.report import curves
from dpaudit.report.curves import Curve, staircase
from dpaudit.report.growth import Growth

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark on an axis: where, in percent, what it says, and whether a phone can do without."""

    at: float
    label: str
    minor: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line or an area.

    Arguments:
        role: Its colour's name, and its class in the style sheet.
        label: What the legend says; nothing for what needs no word.
        path: In the commands of SVG, on the square of 100 by 100.
        filled: An area instead of a line.
        dots: Places to mark on it, in percent from the left and from the bottom.
    """

    role: str
    label: str
    path: str
    filled: bool = False
    dots: tuple[tuple[float, float], ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture with two axes."""

    alternative: str
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    references: tuple[Tick, ...] = ()  # horizontal lines with a word
    clipped: int = 0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """From numbers to percent.

    Arguments:
        transform: To a scale on which the axis is even.
        low: The number at 0 %.
        high: The number at 100 %.
    """

    transform: Callable[[Array], Array]
    low: float
    high: float

    def place(self, values: Array) -> Array:
        """Percent along the axis; numbers beyond its ends are put at the ends."""
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        ends = self.transform(np.array([self.low, self.high]))
        return np.asarray(100 * (self.transform(inside) - ends[0]) / (ends[1] - ends[0]))

    def ticks(self, values: Iterable[float], label: Callable[[float], str]) -> tuple[Tick, ...]:
        """Those of the values that lie on the axis."""
        return tuple(
            Tick(at=round(float(self.place(np.array([value]))[0]), 2), label=label(value))
            for value in values
            if self.low <= value <= self.high
        )


def linear(low: float, high: float) -> Axis:
    """An even axis."""
    return Axis(transform=lambda values: values, low=low, high=high)


def round_steps(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers that cut an interval into about so many pieces.

    Example:
        >>> round_steps(0.0, 26.0)
        [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    """
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + k) * step, 12) for k in range(count)]


def histogram_chart(shown: curves.Histogram) -> Chart:
    """Both worlds as filled outlines."""
    axis = linear(float(shown.edges[0]), float(shown.edges[-1]))
    top = 1.06 * max(float(shown.inserted.max()), float(shown.others.max()), 1e-9)
    height = linear(0.0, top)
    marks = tuple(
        Mark(
            role=role,
            label=label,
            path=_outline(axis.place(shown.edges), height.place(share)),
            filled=True,
        )
        for role, label, share in (
            ("others", "not inserted", shown.others),
            ("inserted", "inserted", shown.inserted),
        )
    )
    return Chart(
        alternative="Histograms of the scores of both worlds",
        x_label="score",
        y_label="share of each world",
        # The plot reaches from edge to edge: a label at its very end would hang over.
        x_ticks=tuple(
            tick
            for tick in axis.ticks(round_steps(axis.low, axis.high, 5), _short)
            if 3 < tick.at < 97
        ),
        y_ticks=(),
        marks=marks,
        clipped=shown.outside,
    )


def tradeoff_chart(shown: curves.TradeoffCurves) -> Chart:
    """Error rates on normal quantiles: there every Gaussian curve is a straight line."""
    smallest = curves.SMALLEST_RATE
    axis = Axis(transform=ndtri, low=smallest, high=1 - smallest)
    marks = []
    if shown.promised is not None:
        path = _line(shown.promised, axis, axis)
        marks.append(Mark(role="forbidden", label="", path=f"{path}L0,100Z", filled=True))
        marks.append(Mark(role="promised", label="promised by the accountant", path=path))
    if shown.fitted is not None:
        label = "Gaussian curve fitted to the scores"
        marks.append(Mark(role="fitted", label=label, path=_line(shown.fitted, axis, axis)))
    path = _line(staircase(shown.seen), axis, axis)
    marks.append(Mark(role="others", label="seen", path=path))
    label = f"proven: the truth is below it ({100 * shown.confidence:g} %)"
    path = _line(staircase(shown.proven), axis, axis)
    marks.append(Mark(role="proven", label=label, path=path))
    ticks = axis.ticks((0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999), _percent)
    return Chart(
        alternative="Trade-off curve: false-negative against false-positive rate",
        x_label="false-positive rate",
        y_label="false-negative rate",
        x_ticks=tuple(replace(tick, minor=tick.label in ("1 %", "99 %")) for tick in ticks),
        y_ticks=ticks,
        marks=tuple(marks),
    )


def profile_chart(shown: curves.ProfileCurves) -> Chart:
    """Delta on a logarithmic axis against epsilon."""
    x = linear(0.0, float(shown.proven.x[-1]))
    y = Axis(transform=np.log10, low=curves.SMALLEST_DELTA, high=1.0)
    marks = []
    if shown.promised is not None:
        promised = Mark(
            role="promised",
            label="promised: at most",
            path=_line(_ended(shown.promised), x, y),
        )
        marks.append(promised)
    if shown.gaussian is not None:
        label = "shown: at least, if the trade-off curve is Gaussian"
        path = _line(_ended(shown.gaussian), x, y)
        marks.append(Mark(role="fitted", label=label, path=path))
    label = f"proven: at least ({100 * shown.confidence:g} %)"
    marks.append(Mark(role="proven", label=label, path=_line(_ended(shown.proven), x, y)))
    references = y.ticks([shown.delta], lambda delta: f"delta = {delta:g}")
    return Chart(
        alternative="Privacy profile: delta against epsilon",
        x_label="epsilon",
        y_label="delta",
        x_ticks=x.ticks(round_steps(x.low, x.high), _short),
        y_ticks=y.ticks([1e-8, 1e-6, 1e-4, 1e-2, 1.0], _power),
        marks=tuple(marks),
        references=references,
    )


def growth_chart(shown: Growth, promised: float | None) -> Chart:
    """The bound against the number of runs, on a logarithmic axis."""
    every = [shown.bounds, shown.free, shown.expected, shown.attainable]
    drawn = [curve for curve in every if curve is not None]
    furthest = max(float(curve.x[-1]) for curve in drawn)
    x = Axis(transform=np.log10, low=float(shown.bounds.x[0]), high=furthest * 1.0001)
    highest = max([promised or 0.0, *(float(curve.y.max()) for curve in drawn), 0.1])
    y = linear(0.0, 1.12 * highest)
    marks = []
    if shown.attainable is not None:
        label = "to expect of worlds as far apart as the promise allows"
        marks.append(Mark(role="promised", label=label, path=_line(shown.attainable, x, y)))
    if shown.expected is not None:
        label = "to expect of worlds as far apart as these look"
        marks.append(Mark(role="fitted", label=label, path=_line(shown.expected, x, y)))
    marks.append(_dotted("proven", "shown by the first so many", shown.bounds, x, y))
    marks.append(_dotted("free", "the same, whatever the shape of the curve", shown.free, x, y))
    references = () if promised is None else y.ticks([promised], lambda e: f"promised: {e:.2f}")
    return Chart(
        alternative=f"Lower bound against the number of {shown.unit}",
        x_label=shown.unit,
        y_label="epsilon",
        x_ticks=x.ticks(_decades(x.low, x.high), lambda value: f"{value:,.0f}"),
        y_ticks=y.ticks(round_steps(0.0, y.high, 5), _short),
        marks=tuple(marks),
        references=references,
    )


def horizon_chart(
    steps: Sequence[int], lower: Sequence[float], upper: Sequence[float | None]
) -> Chart:
    """Both bounds against the number of steps after which training stops."""
    places = np.asarray(steps, dtype=float)
    finite = [value for value in upper if value is not None and math.isfinite(value)]
    x = linear(0.0, float(places.max()) * 1.03)
    y = linear(0.0, 1.12 * max([*finite, *lower, 0.1]))
    marks = []
    if len(finite) == len(upper):
        promised = Curve(x=places, y=np.asarray(finite))
        marks.append(_dotted("promised", "promised: at most", promised, x, y))
    shown = Curve(x=places, y=np.asarray(lower))
    marks.append(_dotted("proven", "shown: at least", shown, x, y))
    return Chart(
        alternative="Bounds against the number of steps",
        x_label="steps",
        y_label="epsilon",
        x_ticks=x.ticks(round_steps(x.low, x.high), _short),
        y_ticks=y.ticks(round_steps(0.0, y.high, 5), _short),
        marks=tuple(marks),
    )


def epsilon_axis(*values: float | None) -> Axis:
    """From 0 to a little more than the largest finite value."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return linear(0.0, 1.08 * max([*finite, 0.5]))


def _line(curve: Curve, x: Axis, y: Axis) -> str:
    across, up = x.place(curve.x), 100 - y.place(curve.y)
    return "M" + "L".join(f"{a:.2f},{b:.2f}" for a, b in zip(across, up, strict=True))


def _dotted(role: str, label: str, curve: Curve, x: Axis, y: Axis) -> Mark:
    places = zip(x.place(curve.x).tolist(), y.place(curve.y).tolist(), strict=True)
    dots = tuple((round(a, 2), round(b, 2)) for a, b in places)
    return Mark(role=role, label=label, path=_line(curve, x, y), dots=dots)


def _outline(edges: Array, heights: Array) -> str:
    """The outline of a histogram, closed along the bottom."""
    across = np.repeat(edges, 2)[1:-1]
    up = 100 - np.repeat(heights, 2)
    inner = "L".join(f"{a:.2f},{b:.2f}" for a, b in zip(across, up, strict=True))
    return f"M{edges[0]:.2f},100L{inner}L{edges[-1]:.2f},100Z"


def _ended(curve: Curve) -> Curve:
    """A falling curve up to where it leaves the axis, so that nothing crawls along the bottom."""
    below = np.flatnonzero(curve.y <= curves.SMALLEST_DELTA)
    end = len(curve.x) if len(below) == 0 else int(below[0]) + 1
    return Curve(x=curve.x[:end], y=curve.y[:end])


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    whole = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(whole) >= 3:
        return whole
    return [times * 10.0**power for power in powers for times in (1, 3)]


def _short(value: float) -> str:
    return f"{value:.4g}".replace("-", "−") if abs(value) < 1e4 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{100 * value:g} %"


def _power(value: float) -> str:
    power = round(math.log10(value))
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "1" if power == 0 else f"10{raised}"
