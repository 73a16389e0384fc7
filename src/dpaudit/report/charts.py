"""The pictures of an audit, as curves with axes: pages draw them as SVG, `figures` in matplotlib.

In a page, curves are paths in a square of 100 by 100, which is stretched to the width of the screen
or sheet, while text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final

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

if TYPE_CHECKING:
    from dpaudit.audits.assessment import Assessment


def _normal_quantiles(rates: Array) -> Array:
    from scipy.special import ndtri  # slow to import

    return np.asarray(ndtri(rates))


_SCALES: dict[str, Callable[[Array], Array]] = {
    "linear": lambda values: values,
    "log": np.log10,
    "normal": _normal_quantiles,
}


@final
@dataclass(frozen=True, kw_only=True)
class Tick:
    """A tick: its number, its place in percent, its label, and whether narrow screens omit it."""

    value: float
    at: float
    label: str
    minor: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """From numbers between ``low`` and ``high`` to percent, on a scale."""

    low: float
    high: float
    scale: Literal["linear", "log", "normal"] = "linear"

    def inside(self, values: Array) -> Array:
        """The numbers; those beyond the ends of the axis are put at the ends."""
        return np.asarray(np.clip(np.asarray(values, dtype=float), self.low, self.high))

    def place(self, values: Array) -> Array:
        """Percent along the axis."""
        transform = _SCALES[self.scale]
        ends = transform(np.array([self.low, self.high]))
        return np.asarray(100 * (transform(self.inside(values)) - ends[0]) / (ends[1] - ends[0]))

    def ticks(self, values: Iterable[float], label: Callable[[float], str]) -> tuple[Tick, ...]:
        """Those of the values that lie on the axis."""
        return tuple(
            Tick(
                value=value,
                at=round(float(self.place(np.array([value]))[0]), 2),
                label=label(value),
            )
            for value in values
            if self.low <= value <= self.high
        )


_RATES = Axis(low=SMALLEST_RATE, high=1 - SMALLEST_RATE, scale="normal")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Mark:
    """A line, or the area below it; a mark without a label is not in the legend."""

    role: str  # the name of its colour, and its class in the style sheet
    curve: Curve
    label: str = ""
    filled: bool = False
    dotted: bool = False


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """A picture with two axes."""

    alternative: str
    x: Axis
    y: Axis
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...] = ()
    references: tuple[Tick, ...] = ()  # horizontal lines with a label
    clipped: int = 0

    def path(self, mark: Mark) -> str:
        """The SVG path of a line, or of the area below it."""
        across, up = self.x.place(mark.curve.x), 100 - self.y.place(mark.curve.y)
        line = "L".join(f"{a:.2f},{b:.2f}" for a, b in zip(across, up, strict=True))
        if not mark.filled:
            return f"M{line}"
        return f"M{across[0]:.2f},100L{line}L{across[-1]:.2f},100Z"

    def dots(self, mark: Mark) -> list[tuple[float, float]]:
        """The points to mark on a line, in percent from the left and from the bottom."""
        if not mark.dotted:
            return []
        across, up = self.x.place(mark.curve.x), self.y.place(mark.curve.y)
        return [(round(float(a), 2), round(float(b), 2)) for a, b in zip(across, up, strict=True)]


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
    x = Axis(low=float(shown.edges[0]), high=float(shown.edges[-1]))
    top = 1.06 * max(float(shown.inserted.max()), float(shown.others.max()), 1e-9)
    across = np.repeat(shown.edges, 2)[1:-1]
    ticks = x.ticks(round_steps(x.low, x.high, 5), _short)
    return Chart(
        alternative="Histograms of the scores with and without the canary",
        x=x,
        y=Axis(low=0.0, high=top),
        x_label="score",
        y_label="share of the runs",
        # A label at the very end of the axis would overhang the plot.
        x_ticks=tuple(tick for tick in ticks if 3 < tick.at < 97),
        y_ticks=(),
        marks=tuple(
            Mark(role=role, label=label, curve=Curve(x=across, y=np.repeat(share, 2)), filled=True)
            for role, label, share in (
                ("others", "not inserted", shown.others),
                ("inserted", "inserted", shown.inserted),
            )
        ),
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
    sure = f"proven ({percent(shown.confidence)} %)"
    marks = []
    if shown.claimed is not None:
        marks.append(Mark(role="forbidden", curve=shown.claimed, filled=True))
        marks.append(Mark(role="claimed", label="claimed", curve=shown.claimed))
    if shown.fitted is not None:
        marks.append(Mark(role="fitted", label="Gaussian fit", curve=shown.fitted))
    marks.append(Mark(role="others", label="observed", curve=staircase(shown.seen)))
    marks.append(Mark(role="proven", label=sure, curve=staircase(shown.proven)))
    return replace(overlay_axes(), marks=tuple(marks))


def overlay_axes() -> Chart:
    """The axes of trade-off functions, without any curve."""
    ticks = _RATES.ticks((0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999), lambda at: f"{100 * at:g}")
    return Chart(
        alternative="Trade-off function: false-negative against false-positive rate",
        x=_RATES,
        y=_RATES,
        x_label="false-positive rate (%)",
        y_label="false-negative rate (%)",
        x_ticks=tuple(replace(tick, minor=tick.label in ("1", "99")) for tick in ticks),
        y_ticks=ticks,
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
    x = Axis(low=0.0, high=float(shown.proven.x[-1]))
    y = Axis(low=SMALLEST_DELTA, high=1.0, scale="log")
    curves = (
        ("claimed", "claimed: at most", shown.claimed),
        ("fitted", "shown, if Gaussian", shown.gaussian),
        ("proven", f"proven ({percent(shown.confidence)} %)", shown.proven),
    )
    return Chart(
        alternative="Privacy profile: delta against epsilon",
        x=x,
        y=y,
        x_label="epsilon",
        y_label="delta",
        x_ticks=x.ticks(round_steps(x.low, x.high), _short),
        y_ticks=y.ticks([1e-8, 1e-6, 1e-4, 1e-2, 1.0], _power),
        marks=tuple(
            Mark(role=role, label=label, curve=_ended(curve))
            for role, label, curve in curves
            if curve is not None
        ),
        references=y.ticks([shown.delta], lambda delta: f"delta = {delta:g}"),
    )


def horizon_chart(stops: Sequence[Assessment]) -> Chart:
    """Both bounds against the number of steps after which training stops."""
    steps = np.array([stop.horizon for stop in stops], dtype=float)
    lower = np.array([stop.leading.epsilon for stop in stops])
    upper = np.array([stop.least_upper.epsilon for stop in stops])
    x = Axis(low=0.0, high=float(steps.max()) * 1.03)
    y = Axis(low=0.0, high=1.12 * max([*upper[np.isfinite(upper)], *lower, 0.1]))
    marks = [
        Mark(role=role, label=label, curve=Curve(x=steps, y=values), dotted=True)
        for role, label, values in (
            ("claimed", "claimed: at most", upper),
            ("proven", "shown: at least", lower),
        )
        if np.isfinite(values).all()
    ]
    return Chart(
        alternative="Bounds against the number of steps",
        x=x,
        y=y,
        x_label="steps",
        y_label="epsilon",
        x_ticks=x.ticks(round_steps(x.low, x.high), _short),
        y_ticks=y.ticks(round_steps(0.0, y.high, 5), _short),
        marks=tuple(marks),
    )


def epsilon_axis(*values: float | None) -> Axis:
    """From 0 to a little more than the largest finite value."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return Axis(low=0.0, high=1.08 * max([*finite, 0.5]))


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
