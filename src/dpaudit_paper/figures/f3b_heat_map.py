"""F3b: the share of the first step's epsilon that is left after 25, over noise and batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.table import Table
from dpaudit_paper.threshold_grid import BATCH_SIZES, NOISE_MULTIPLIERS, STEPS, measure_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

PANELS = (("paper_rule", "audit, the paper's rule"), ("exact", "exact"))


def measure(setting: Setting) -> Table:
    """The first and the last step of every process."""
    table = measure_grid(setting, NOISE_MULTIPLIERS, audited=(1, STEPS))
    kept = tuple(
        row
        for row, step in zip(table.rows, table.column("steps"), strict=True)
        if step in (1, STEPS)
    )
    return Table(columns=table.columns, rows=kept)


def ratios(table: Table, column: str, scaling: str = "paper") -> NDArray[np.float64]:
    """epsilon(T = 25) / epsilon(T = 1), noise multipliers down and batch sizes across."""
    rows = table.where(scaling=scaling)

    def cell(sigma: int, batch: int) -> float:
        process = rows.where(sigma=sigma, batch_size=batch)
        first = process.where(steps=1).number(column)
        return process.where(steps=STEPS).number(column) / first if first > 0 else float("nan")

    return np.array([[cell(s, b) for b in BATCH_SIZES] for s in NOISE_MULTIPLIERS])


def draw(table: Table) -> Drawing:
    """The audit's map beside the exact one."""
    figure, axes = style.new_figure(columns=2, width=style.PAGE, height=3.6)
    for axis, (column, title) in zip(axes, PANELS, strict=True):
        ratio = ratios(table, column)
        image = axis.imshow(ratio, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        axis.grid(visible=False)
        axis.set(title=title, xlabel="batch size B")
        axis.set_xticks(range(len(BATCH_SIZES)), [str(batch) for batch in BATCH_SIZES])
        axis.set_yticks(range(len(NOISE_MULTIPLIERS)), [str(sigma) for sigma in NOISE_MULTIPLIERS])
        for (row, place), value in np.ndenumerate(ratio):
            axis.text(
                place,
                row,
                "–" if np.isnan(value) else f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if value < 0.55 else "black",
            )
    axes[0].set_ylabel("noise multiplier sigma")
    figure.colorbar(image, ax=axes, label="epsilon(T = 25) / epsilon(T = 1)", shrink=0.9)
    return figure


def findings(table: Table) -> str:
    """Both trends, in the audit and in the exact epsilon."""
    audited, exact = ratios(table, "paper_rule"), ratios(table, "exact")
    return (
        "The trend in the batch size holds by both measures: from B = 1 to B = 16 at sigma = 1 the "
        f"ratio goes from {audited[0, 0]:.2f} to {audited[0, -1]:.2f} in the audit and from "
        f"{exact[0, 0]:.2f} to {exact[0, -1]:.2f} exactly. For this landscape, with its threshold "
        "at C/2, the trend in sigma appears under the GDP rule only: from sigma = 1 to 8 at B = 1 "
        f"the audit's ratio goes from {audited[0, 0]:.2f} to {audited[-1, 0]:.2f}, the exact one "
        f"only from {exact[0, 0]:.2f} to {exact[-1, 0]:.2f}; at B = 16 the exact ratio is "
        f"{exact[:, -1].min():.2f} to {exact[:, -1].max():.2f} for every sigma. A threshold that "
        "moves from batch to batch does show the trend (docs/landscapes.md)."
    )


FIGURE = Figure(
    id="F3b",
    title="heat map of epsilon(T = 25) / epsilon(T = 1)",
    label="fig:amplification_rate",
    quick=Cost(cpu=40, gpu=40),
    full=Cost(cpu=40, gpu=40),
    measure=measure,
    draw=draw,
    findings=findings,
)
