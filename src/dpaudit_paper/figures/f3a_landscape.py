"""F3a: what the crafted landscape keeps over 25 steps, at the least and the most noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.table import Table
from dpaudit_paper.threshold_drawing import draw_over_steps
from dpaudit_paper.threshold_grid import measure_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

SIGMAS = (1, 8)


def measure(setting: Setting) -> Table:
    """Both noise multipliers at every batch size."""
    return measure_grid(setting, SIGMAS)


def draw(table: Table) -> Drawing:
    """Two panels."""
    return draw_over_steps(table, SIGMAS, columns=2, height=3.3)


def findings(table: Table) -> str:
    """The last step at the smallest and the largest batch."""
    parts = []
    for sigma in SIGMAS:
        for batch in (1, 16):
            row = table.where(scaling="paper", sigma=sigma, batch_size=batch, steps=25)
            parts.append(
                f"at sigma = {sigma}, B = {batch} the audit by the paper's rule gives "
                f"{row.number('paper_rule'):.3f} and the exact epsilon is "
                f"{row.number('exact'):.3f} of {row.number('accountant'):.3f} (assumption-free "
                "audit "
                f"{row.number('clopper_pearson'):.3f})"
            )
    ends = table.where(scaling="paper", sigma=1, steps=25)
    rule = [ends.where(batch_size=batch).number("gdp_rule") for batch in (1, 16)]
    other = table.where(scaling="dpsgd", sigma=1, batch_size=16, steps=25).number("exact")
    return (
        "After 25 steps, "
        + "; ".join(parts)
        + f". Without statistical error the rule would give {rule[0]:.3f} at sigma = 1, B = 1 and "
        f"{rule[1]:.3f} at B = 16: more than the landscape leaks, because its trade-off curve is "
        "not Gaussian. In DP-SGD's own scaling, where every step has the same noise, the same "
        f"landscape keeps {other:.3f} at sigma = 1, B = 16."
    )


FIGURE = Figure(
    id="F3a",
    title="A_S over T = 1 … 25, sigma = 1 and 8",
    label="fig:auditing_t=2",
    quick=Cost(cpu=20, gpu=20),
    full=Cost(cpu=30, gpu=30),
    measure=measure,
    draw=draw,
    findings=findings,
)
