"""Charts of a page: curves as paths in a square of 100 by 100, with ticks, labels and legends.

The square is stretched to the width of the screen or sheet, while text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit._numbers import percent
from dpaudit.audits.curves import (
    SMALLEST_DELTA,
    SMALLEST_RATE,
    Curve,
    Histogram,
    ProfileCurves,
    TradeoffCurves,
)


@final
@dataclass(frozen=True, kw_only=True)
class Tick:
    """A tick: its place in percent, its label, and whether narrow screens leave it out."""

    at: float
    label: str
    minor: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line or an area.

    Arguments:
        role: The name of its colour and its class in the style sheet.
        label: Its text in the legend; empty for marks without a legend entry.
        path: SVG path commands in the square of 100 by 100.
        filled: Whether it is an area instead of a line.
        dots: Points to mark on it, in percent from the left and from the bottom.
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
    references: tuple[Tick, ...] = ()  # horizontal lines with a label
    clipped: int = 0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """From numbers to percent.

    Arguments:
        transform: Maps numbers to a scale on which the axis is linear.
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


def _normal_quantiles(rates: Array) -> Array:
    from scipy.special import ndtri  # slow to import

    return np.asarray(ndtri(rates))


_RATES = Axis(transform=_normal_quantiles, low=SMALLEST_RATE, high=1 - SMALLEST_RATE)


def linear(low: float, high: float) -> Axis:
    """A linear axis."""
    return Axis(transform=lambda values: values, low=low, high=high)


def round_steps(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers that cut an interval into about this many pieces.

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


def histogram_chart(shown: Histogram) -> Chart:
    """The scores with and without the canary as filled outlines."""
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
        alternative="Histograms of the scores with and without the canary",
        x_label="score",
        y_label="share of the runs",
        # A label at the very end of the axis would overhang the plot.
        x_ticks=tuple(
            tick
            for tick in axis.ticks(round_steps(axis.low, axis.high, 5), _short)
            if 3 < tick.at < 97
        ),
        y_ticks=(),
        marks=marks,
        clipped=shown.outside,
    )


def staircase(curve: Curve) -> Curve:
    """A falling curve of points as steps, from the top to the right end of the unit square.

    A bound at one false-positive rate holds at every larger one, so the steps between the points
    claim nothing new.

    Example:
        >>> steps = staircase(Curve(x=np.array([0.1, 0.3]), y=np.array([0.5, 0.2])))
        >>> steps.x.tolist(), steps.y.tolist()
        ([0.1, 0.1, 0.3, 0.3, 1.0], [1.0, 0.5, 0.5, 0.2, 0.2])
    """
    if len(curve.x) == 0:
        return Curve(x=np.array([0.0, 1.0]), y=np.array([1.0, 1.0]))
    return Curve(
        x=np.append(np.repeat(curve.x, 2), 1.0),
        y=np.append(np.append(1.0, np.repeat(curve.y, 2)[:-1]), curve.y[-1]),
    )


def tradeoff_chart(shown: TradeoffCurves) -> Chart:
    """Error rates on normal quantiles, where a Gaussian trade-off function is a straight line."""
    axis = _RATES
    marks = []
    if shown.claimed is not None:
        path = _line(shown.claimed, axis, axis)
        marks.append(Mark(role="forbidden", label="", path=f"{path}L0,100Z", filled=True))
        marks.append(Mark(role="claimed", label="claimed", path=path))
    if shown.fitted is not None:
        label = "Gaussian fit to the scores"
        marks.append(Mark(role="fitted", label=label, path=_line(shown.fitted, axis, axis)))
    path = _line(staircase(shown.seen), axis, axis)
    marks.append(Mark(role="others", label="observed", path=path))
    label = f"proven: the true curve is below ({percent(shown.confidence)} %)"
    path = _line(staircase(shown.proven), axis, axis)
    marks.append(Mark(role="proven", label=label, path=path))
    return replace(overlay_axes(), marks=tuple(marks))


def overlay_axes() -> Chart:
    """The axes of trade-off functions, without any curve."""
    ticks = _RATES.ticks((0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999), lambda at: f"{100 * at:g} %")
    return Chart(
        alternative="Trade-off function: false-negative against false-positive rate",
        x_label="false-positive rate",
        y_label="false-negative rate",
        x_ticks=tuple(replace(tick, minor=tick.label in ("1 %", "99 %")) for tick in ticks),
        y_ticks=ticks,
        marks=(),
    )


def overlay_paths(shown: TradeoffCurves) -> tuple[str, str | None]:
    """The proven and the claimed curve as short paths, for a chart with those of many audits."""
    claimed = shown.claimed
    return (
        _coarse_line(staircase(shown.proven)),
        None if claimed is None else _coarse_line(claimed),
    )


def _coarse_line(curve: Curve) -> str:
    """A path without the points that are less than a hundredth of the chart from the last one."""
    places = zip(_RATES.place(curve.x), 100 - _RATES.place(curve.y), strict=True)
    spread: list[tuple[float, float]] = []
    *before, last = places
    for point in before:
        if not spread or math.dist(point, spread[-1]) >= 1.0:
            spread.append(point)
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in [*spread, last])


def profile_chart(shown: ProfileCurves) -> Chart:
    """Delta on a logarithmic axis against epsilon."""
    x = linear(0.0, float(shown.proven.x[-1]))
    y = Axis(transform=np.log10, low=SMALLEST_DELTA, high=1.0)
    marks = []
    if shown.claimed is not None:
        path = _line(_ended(shown.claimed), x, y)
        marks.append(Mark(role="claimed", label="claimed: at most", path=path))
    if shown.gaussian is not None:
        label = "shown: at least, if the trade-off function is Gaussian"
        path = _line(_ended(shown.gaussian), x, y)
        marks.append(Mark(role="fitted", label=label, path=path))
    label = f"proven: at least ({percent(shown.confidence)} %)"
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


def horizon_chart(steps: Sequence[int], lower: Sequence[float], upper: Sequence[float]) -> Chart:
    """Both bounds against the number of steps after which training stops."""
    places = np.asarray(steps, dtype=float)
    finite = list(filter(math.isfinite, upper))
    x = linear(0.0, float(places.max()) * 1.03)
    y = linear(0.0, 1.12 * max([*finite, *lower, 0.1]))
    marks = []
    if len(finite) == len(upper):
        claimed = Curve(x=places, y=np.asarray(finite))
        marks.append(_dotted("claimed", "claimed: at most", claimed, x, y))
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
    """A falling curve up to where it leaves the axis."""
    below = np.flatnonzero(curve.y <= SMALLEST_DELTA)
    end = len(curve.x) if len(below) == 0 else int(below[0]) + 1
    return Curve(x=curve.x[:end], y=curve.y[:end])


def _short(value: float) -> str:
    return f"{value:.4g}".replace("-", "−") if abs(value) < 1e4 else f"{value:,.0f}"


def _power(value: float) -> str:
    power = round(math.log10(value))
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "1" if power == 0 else f"10{raised}"
