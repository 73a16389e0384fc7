"""One column of dots for each series: every seed's final bound, and their mean. A1 and A5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from dpaudit_paper import style
from dpaudit_paper.curves import FREE, PAPER, VALID
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_DOTS = {
    VALID: (style.BLUE, "o", -0.18, "GDP, pilot threshold"),
    PAPER: (style.ORANGE, "s", 0.0, "GDP, best threshold (paper)"),
    FREE: (style.GREEN, "^", 0.18, "assumption-free"),
}


def draw_seed_dots(table: Table) -> Drawing:
    """One column per series; the three bounds side by side."""
    from matplotlib.lines import Line2D

    figure, (axis,) = style.new_figure(width=style.COLUMN, height=3.1)
    names = table.words("series")
    for place, name in enumerate(names):
        rows = table.where(series=name)
        for column, (colour, marker, shift, _) in _DOTS.items():
            values = np.array(rows.numbers(column))
            axis.plot(
                np.full(len(values), place + shift), values, marker, color=colour, ms=3, alpha=0.7
            )
            if not np.isnan(values).all():
                mean = np.nanmean(values)
                axis.hlines(mean, place + shift - 0.09, place + shift + 0.09, color=colour, lw=1.4)
    accountant = table.numbers("accountant")[0]
    axis.axhline(accountant, color=style.GREY, linestyle="-.", lw=1.0)
    axis.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    if len(names) > 4:
        axis.tick_params(axis="x", labelrotation=35, labelsize=6.5)
    axis.set(ylabel="epsilon at delta = 1e-5", ylim=(0, max(1.08 * accountant, axis.get_ylim()[1])))
    axis.grid(visible=False, axis="x")
    handles = [
        Line2D([], [], color=colour, marker=marker, ls="", label=label)
        for colour, marker, _, label in _DOTS.values()
    ]
    handles.append(Line2D([], [], color="black", lw=1.4, label="mean over the seeds"))
    handles.append(Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"))
    style.legend_below(figure, handles, columns=2)
    return figure


def means(table: Table, column: str) -> dict[str, float]:
    """The mean of a column for every series, over its seeds."""
    return {
        name: float(np.mean(table.where(series=name).numbers(column)))
        for name in table.words("series")
    }


def compared(table: Table, one: str, other: str, column: str = VALID) -> str:
    """The difference between ``one`` and ``other``, paired by seed, with its interval."""
    ours, theirs = (np.array(table.where(series=name).numbers(column)) for name in (one, other))
    gaps = ours - theirs
    if len(gaps) < 2:
        return f"{gaps.mean():+.2f}, under one seed"
    error = gaps.std(ddof=1) / math.sqrt(len(gaps))
    decided = abs(gaps.mean()) > stdtrit(len(gaps) - 1, 0.975) * error
    return f"{gaps.mean():+.2f} ± {error:.2f}, {'decided' if decided else 'not decided'}"
