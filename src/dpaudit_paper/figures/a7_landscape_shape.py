"""A7: the loss landscape of A_S: as printed, with its sign corrected, and one that keeps more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.landscapes import exact_privacy, named_landscape
from dpaudit_paper.readings import DELTA
from dpaudit_paper.table import Row, Table
from dpaudit_paper.threshold_grid import threshold_process

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

SIGMA, BATCH = 1, 8
SHAPES = {
    "threshold": "away from C/2 (A_S, meant)",
    "literal": "towards C/2 (as printed)",
    "wells": "wells (not in the paper)",
}


def measure(setting: Setting) -> Table:
    """The loss over positions, and the exact epsilon after 25 steps."""
    rows: list[Row] = []
    for shape in SHAPES:
        process = threshold_process(SIGMA, BATCH)
        process = process.with_landscape(named_landscape(shape, process, delta=DELTA))
        epsilon = float(exact_privacy(process, delta=DELTA).epsilon[-1])
        position = np.linspace(-4.0, 5.0, 361)
        drift = process.drift(position)
        # The drift is minus the gradient over B; the loss is its integral, in units of B C^2.
        steps = (drift[1:] + drift[:-1]) / 2 * np.diff(position)
        loss = -np.concatenate([[0.0], np.cumsum(steps)])
        rows += [
            {
                "shape": shape,
                "sigma": SIGMA,
                "batch_size": BATCH,
                "epsilon_25": epsilon,
                "position": x,
                "loss": value,
            }
            for x, value in zip(position, loss - loss.max(), strict=True)
        ]
    return Table.of(rows)


def draw(table: Table) -> Drawing:
    """Three landscapes."""
    figure, axes = style.new_figure(columns=len(SHAPES), width=style.PAGE, height=2.3)
    for axis, (shape, title) in zip(axes, SHAPES.items(), strict=True):
        rows = table.where(shape=shape)
        axis.plot(rows.numbers("position"), rows.numbers("loss"), color=style.BLUE)
        axis.axvline(0.5, color=style.GREY, linestyle=":", lw=0.8)
        axis.set(title=f"{title}\nepsilon(25) = {rows.numbers('epsilon_25')[0]:.2f}")
        axis.set(xlabel="position / C")
    axes[0].set_ylabel("loss / (B C²)")
    return figure


def findings(table: Table) -> str:
    """The effect of the sign."""
    kept = {shape: table.where(shape=shape).numbers("epsilon_25")[0] for shape in SHAPES}
    return (
        "The update as printed descends a convex loss, |position - C/2|: the process returns to "
        f"C/2, and epsilon is {kept['literal']:.2f} after 25 steps at sigma = {SIGMA}, "
        f"B = {BATCH}. The landscape that the text describes has its maximum at C/2; there epsilon "
        f"is {kept['threshold']:.2f}. Wells that round the first step keep {kept['wells']:.2f}, "
        "the accountant's epsilon to two digits."
    )


FIGURE = Figure(
    id="A7",
    title="the loss landscape of A_S",
    label="fig:adg_syntethic_example",
    quick=Cost(cpu=2, gpu=2),
    full=Cost(cpu=2, gpu=2),
    alike=True,
    measure=measure,
    draw=draw,
    findings=findings,
)
