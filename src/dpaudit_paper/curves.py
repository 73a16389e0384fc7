"""Curves over training: bounds on epsilon of a training that stops after T steps.

Marker shows the series, line style shows the bound. A series that is named after its adversary has
the colour of that adversary, any other a colour that no adversary has. Of two series of the same
colour the second has hollow markers. Several seeds are drawn as their mean with a band from the
smallest to the largest value.
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
    from matplotlib.lines import Line2D

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
    further: Sequence[Line2D] = (),
) -> Drawing:
    """One panel for each value of ``panel``, one line for each value of ``series``.

    Arguments:
        table: Rows of `dpaudit_paper.readings.curve_rows`.
        height: Height in inches.
        width: Width in inches; depends on the number of panels by default.
        bounds: The columns to draw.
        further: Entries of the legend for lines that the caller draws.
    """
    from matplotlib.lines import Line2D

    panels = table.words("panel") or [""]
    names = table.words("series")
    colours = series_colours(names)
    looks = [_markers(place, colours) for place in range(len(names))]
    if width is None:
        width = style.COLUMN if len(panels) == 1 else style.PAGE
    figure, axes = style.new_figure(columns=len(panels), width=width, height=height)
    for axis, panel in zip(axes, panels, strict=True):
        shown = table.where(panel=panel) if panel else table
        for place, name in enumerate(names):
            _series(axis, shown.where(series=name), colours[place], looks[place], bounds)
        _accountant(axis, shown)
        axis.set(title=panel, xlabel="steps T", ylim=(0, None))
        axis.margins(x=0.03)
    axes[0].set_ylabel("epsilon at delta = 1e-5")
    series = [
        Line2D([], [], color=colour, label=name, **look)
        for name, colour, look in zip(names, colours, looks, strict=True)
    ]
    lines = [
        Line2D([], [], color="black", linestyle=LINES[bound][0], label=LINES[bound][1])
        for bound in bounds
    ]
    lines.append(Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"))
    groups = [[*series, *further], lines]
    style.grouped_legend_below(figure, groups, columns=2 if width < style.PAGE else 4)
    return figure


def _accountant(axis: Any, shown: Table) -> None:
    points = sorted(set(zip(shown.numbers("steps"), shown.numbers("accountant"), strict=True)))
    steps, epsilon = zip(*points, strict=True)
    axis.plot(steps, epsilon, color=style.GREY, linestyle="-.", lw=1.0, zorder=3)


def _series(
    axis: Any, rows: Table, colour: str, look: dict[str, Any], bounds: Sequence[str]
) -> None:
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
            clip_on=False,  # markers at 0 are shown whole
            **(look if leading else {}),
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

    If some do, the other series have colours that belong to none of the paper's adversaries.

    Example:
        >>> series_colours(["ConvNet, A_GC-R", "ResNet18, A_GC-R", "unknown start"])
        ['#E69F00', '#E69F00', '#D55E00']
        >>> series_colours(["known start", "unknown start"])
        ['#0072B2', '#E69F00']
    """
    known = {NAMES[name]: colour for name, colour in ADVERSARIES.items() if name in NAMES}
    found = [known.get(name.rsplit(", ", maxsplit=1)[-1]) for name in names]
    taken = set(known.values()) if any(found) else set()
    left = iter([colour for colour in style.COLOURS if colour not in taken] * len(names))
    return [next(left) if colour is None else colour for colour in found]


def _markers(place: int, colours: Sequence[str]) -> dict[str, Any]:
    """The marker of a series; hollow if an earlier series has the same colour."""
    look: dict[str, Any] = {"marker": style.MARKERS[place % len(style.MARKERS)]}
    if colours[place] in colours[:place]:
        look |= {"markerfacecolor": "white", "markersize": 4.0, "markeredgewidth": 0.9}
    return look
