"""F1c: the small network on Housing, five seeds, a canary at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension, SimulatedDimension
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.housing import housing, seeds
from dpaudit_paper.readings import NAMES, Line, curves, final_rows, spread
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting

ADVERSARIES: tuple[Adversary, ...] = (SimulatedDimension(), RandomDimension(), FlippedLabel())


def measure(setting: Setting) -> Table:
    """Audit every adversary under every seed."""
    return curves(
        setting,
        (
            Line(series=NAMES[adversary.name], trainings=housing(adversary, setting, seed))
            for adversary in ADVERSARIES
            for seed in seeds(setting)
        ),
    )


def findings(table: Table) -> str:
    """What the final models prove, by adversary."""
    last = final_rows(table)
    upper = last.numbers("accountant")[0]
    parts = []
    for name in table.words("series"):
        rows = last.where(series=name)
        mean = sum(rows.numbers("gaussian_dp")) / len(rows)
        mu = sum(rows.numbers("mu")) / len(rows)
        parts.append(
            f"{name} proves {mean:.2f} on average over {len(rows)} seeds "
            f"({spread(rows.numbers('gaussian_dp'))}; by the paper's threshold rule "
            f"{spread(rows.numbers('paper_rule'))}; mu by moments {mu:.3f})"
        )
    free = spread(last.where(series="A_GC-S").numbers("clopper_pearson"))
    return (
        f"Of the accountant's {upper:.3f} at T = {int(max(table.numbers('steps')))}: "
        + "; ".join(parts)
        + f". Without assumptions about the trade-off curve A_GC-S proves {free}."
    )


FIGURE = Figure(
    id="F1c",
    title="FCNN on Housing, k = 1, five seeds",
    label="fig:low_dim_k=1",
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=60, gpu=45),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
