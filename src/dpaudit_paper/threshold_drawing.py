"""Drawing epsilon over steps for several noise multipliers: shared by F3a and A11."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpaudit_paper import style
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def draw_over_steps(
    table: Table, sigmas: Sequence[float], *, columns: int, height: float
) -> Drawing:
    """One panel per noise multiplier, one shade per batch size, one line style per bound.

    Arguments:
        table: Rows of `dpaudit_paper.threshold_grid.measure_grid`; the paper's scaling is drawn.
        sigmas: Noise multipliers, one panel each.
        columns: Number of panels per row.
        height: Height in inches.
    """
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    shown = table.where(scaling="paper")
    batches = sorted(set(shown.numbers("batch_size")))
    shades = mpl.colormaps["cividis"](np.linspace(0.0, 0.85, len(batches)))
    figure, axes = style.new_figure(
        columns=columns, rows=-(-len(sigmas) // columns), width=style.PAGE, height=height
    )
    for place, (axis, sigma) in enumerate(zip(axes, sigmas, strict=True)):
        rows = shown.where(sigma=sigma)
        for batch, shade in zip(batches, shades, strict=True):
            line = rows.where(batch_size=int(batch))
            steps = line.numbers("steps")
            axis.plot(steps, line.numbers("gdp_rule"), color=shade, linestyle="--", lw=0.8)
            axis.plot(steps, line.numbers("exact"), color=shade)
            for column, marker in (("paper_rule", "o"), ("clopper_pearson", "x")):
                axis.plot(
                    steps, line.numbers(column), marker, color=shade, ms=3, mfc="none", mew=0.8
                )
        axis.axhline(rows.numbers("accountant")[0], color=style.GREY, linestyle="-.", lw=1.0)
        axis.set(title=f"sigma = {sigma:g}", xlabel="steps T", ylim=(0, None))
        if place % columns == 0:
            axis.set_ylabel("epsilon at delta = 1e-5")
    handles = [
        Line2D([], [], color=shade, label=f"B = {int(batch)}")
        for batch, shade in zip(batches, shades, strict=True)
    ]
    handles += [
        Line2D([], [], color="black", label="exact"),
        Line2D([], [], color="black", linestyle="--", lw=0.8, label="GDP rule, no error"),
        Line2D([], [], color="black", marker="o", ls="", mfc="none", label="audit, paper's rule"),
        Line2D([], [], color="black", marker="x", ls="", label="audit, assumption-free"),
        Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"),
    ]
    style.legend_below(figure, handles, columns=5)
    return figure
