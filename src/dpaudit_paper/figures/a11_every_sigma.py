"""A11: the curves behind the heat map, for every noise multiplier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.table import Table
from dpaudit_paper.threshold_drawing import draw_over_steps
from dpaudit_paper.threshold_grid import NOISE_MULTIPLIERS, measure_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting


def measure(setting: Setting) -> Table:
    """Every noise multiplier at every batch size."""
    audited = setting.choose(quick=(1, 5, 25), full=(1, 2, 3, 5, 10, 15, 20, 25))
    return measure_grid(setting, NOISE_MULTIPLIERS, audited=audited)


def draw(table: Table) -> Drawing:
    """Eight panels."""
    return draw_over_steps(table, NOISE_MULTIPLIERS, columns=4, height=4.6)


def findings(table: Table) -> str:
    """The share of epsilon that is left at B = 16, by the GDP rule and exactly."""
    last = table.where(scaling="paper", steps=25)
    large = last.where(batch_size=16)
    rule = [
        a / b for a, b in zip(large.numbers("gdp_rule"), large.numbers("accountant"), strict=True)
    ]
    exact = [
        a / b for a, b in zip(large.numbers("exact"), large.numbers("accountant"), strict=True)
    ]
    return (
        "At B = 16 and T = 25 the GDP rule, without statistical error, gives "
        f"{min(rule):.3f} to {max(rule):.3f} of the accountant's epsilon over sigma = 1 … 8: "
        f"tight, as the paper says. The exact epsilon is {min(exact):.3f} to {max(exact):.3f} of "
        "it. The audit by the paper's rule exceeds the exact epsilon in "
        f"{_above(last, 'paper_rule')} of {len(last)} processes at T = 25, the assumption-free "
        "audit in "
        f"{_above(last, 'clopper_pearson')}."
    )


def _above(rows: Table, column: str) -> int:
    """The number of rows in which an audit exceeds the exact epsilon."""
    pairs = zip(rows.numbers(column), rows.numbers("exact"), strict=True)
    return sum(read > exact for read, exact in pairs)


FIGURE = Figure(
    id="A11",
    title="A_S over T = 1 … 25 for every sigma",
    label="fig:detailed_results_6",
    quick=Cost(cpu=45, gpu=60),
    full=Cost(cpu=90, gpu=60),
    measure=measure,
    draw=draw,
    findings=findings,
)
