"""Curves over training: bounds on epsilon of a training that stops after T steps.

Marker shows the series, line style shows the bound. A series that is named after its adversary has
the colour of that adversary, any other a colour that is left. Several seeds are drawn as their
mean with a band from the smallest to the largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit.report.palette import ADVERSARIES
from dpaudit_paper import style
from dpaudit_paper.readings import NAMES
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

VALID, PAPER, FREE = "gaussian_dp", "paper_rule", "clopper_pearson"
LINES: dict[str, tuple[Any, str]] = {
    VALID: ("-", "GDP, pilot threshold"),
    PAPER: ("--", "GDP, best threshold (paper)"),
    FREE: (":", "assumption-free"),
}


def draw_curves(
    table: Table,
    *,
    height: float = 2.9,
    width: float | None = None,
    bounds: Sequence[str] = (VALID, PAPER, FREE),
) -> Drawing:
    """One panel for each value of ``panel``, one line for each value of ``series``.

    Arguments:
        table: Rows of `dpaudit_paper.readings.curve_rows`.
        height: Height in inches.
        width: Width in inches; depends on the number of panels by default.
        bounds: The columns to draw.
    """
    from matplotlib.lines import Line2D

    panels = table.words("panel") or [""]
    names = table.words("series")
    colours = series_colours(names)
    if width is None:
        width = style.COLUMN if len(panels) == 1 else style.PAGE
    figure, axes = style.new_figure(columns=len(panels), width=width, height=height)
    for axis, panel in zip(axes, panels, strict=True):
        shown = table.where(panel=panel) if panel else table
        _accountant(axis, shown)
        for place, name in enumerate(names):
            _series(axis, shown.where(series=name), colours[place], place, bounds)
        axis.set(title=panel, xlabel="steps T", ylim=(0, None))
        axis.margins(x=0.03)
    axes[0].set_ylabel("epsilon at delta = 1e-5")
    handles = [
        Line2D([], [], color=colours[i], marker=_marker(i), label=name)
        for i, name in enumerate(names)
    ]
    handles += [
        Line2D([], [], color="black", linestyle=LINES[bound][0], label=LINES[bound][1])
        for bound in bounds
    ]
    handles.append(Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"))
    style.legend_below(figure, handles, columns=2 if width < style.PAGE else 3)
    return figure


def _accountant(axis: Any, shown: Table) -> None:
    points = sorted(set(zip(shown.numbers("steps"), shown.numbers("accountant"), strict=True)))
    steps, epsilon = zip(*points, strict=True)
    axis.plot(steps, epsilon, color=style.GREY, linestyle="-.", lw=1.0)


def _series(axis: Any, rows: Table, colour: str, place: int, bounds: Sequence[str]) -> None:
    if not len(rows):
        return
    for bound in bounds:
        by_step: dict[float, list[float]] = {}
        for step, value in zip(rows.numbers("steps"), rows.numbers(bound), strict=True):
            if not np.isnan(value):
                by_step.setdefault(step, []).append(value)
        if not by_step:
            continue
        steps = sorted(by_step)
        leading = bound == bounds[0]
        axis.plot(
            steps,
            [float(np.mean(by_step[step])) for step in steps],
            color=colour,
            linestyle=LINES[bound][0],
            lw=1.3 if leading else 0.9,
            marker=_marker(place) if leading else None,
        )
        if leading and any(len(values) > 1 for values in by_step.values()):
            axis.fill_between(
                steps,
                [min(by_step[step]) for step in steps],
                [max(by_step[step]) for step in steps],
                color=colour,
                alpha=0.18,
                lw=0,
            )


def series_colours(names: Sequence[str]) -> list[str]:
    """A colour for every series: that of its adversary, if the name ends with it.

    Example:
        >>> series_colours(["ConvNet, A_GC-R", "ResNet18, A_GC-R", "unknown start"])
        ['#E69F00', '#E69F00', '#0072B2']
    """
    known = {NAMES[name]: colour for name, colour in ADVERSARIES.items() if name in NAMES}
    found = [known.get(name.rsplit(", ", maxsplit=1)[-1]) for name in names]
    left = iter([colour for colour in style.COLOURS if colour not in found] * len(names))
    return [next(left) if colour is None else colour for colour in found]


def _marker(place: int) -> str:
    return style.MARKERS[place % len(style.MARKERS)]
