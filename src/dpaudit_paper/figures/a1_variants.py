"""A1: the four ways A_GC-S may pick its dimension, beside A_GC-R and A_L, on Housing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension, SimulatedDimension
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.housing import housing, seeds
from dpaudit_paper.readings import Line, curves, final_rows
from dpaudit_paper.seed_dots import compared, draw_seed_dots, means
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting

SERIES: dict[str, Adversary] = {
    "noiseless, per step": SimulatedDimension(),
    "noiseless, final model": SimulatedDimension(ranking="final-model"),
    "noisy, per step": SimulatedDimension(simulation="noisy"),
    "noisy, final model": SimulatedDimension(simulation="noisy", ranking="final-model"),
    "A_GC-R": RandomDimension(),
    "A_L": FlippedLabel(),
}


def measure(setting: Setting) -> Table:
    """The final models of every variant under every seed."""
    return final_rows(
        curves(
            setting,
            (
                Line(series=name, trainings=housing(adversary, setting, seed))
                for name, adversary in SERIES.items()
                for seed in seeds(setting)
            ),
        )
    )


def findings(table: Table) -> str:
    """The variants ordered by their bounds."""
    found = sorted(means(table, "gaussian_dp").items(), key=lambda pair: -pair[1])
    mu = means(table, "mu")
    listed = "; ".join(f"{name} {value:.2f} (mu {mu[name]:.3f})" for name, value in found)
    ours = "noiseless, per step"
    against = "; ".join(f"{name} {compared(table, ours, name)}" for name in SERIES if name != ours)
    return (
        f"Mean bound over {len(set(table.column('seed')))} seeds, of the accountant's "
        f"{table.numbers('accountant')[0]:.3f}: {listed}. Ranking dimensions by the noiseless "
        f"movement of every step, the paper's choice, has rank "
        f"{[name for name, _ in found].index(ours) + 1} of {len(found)} here. Mean difference to "
        "the others, paired by seed (the standard error follows the plus-minus sign, and "
        f"'decided' means significant at 95 %): {against}."
    )


FIGURE = Figure(
    id="A1",
    title="the four variants of A_GC-S on Housing",
    label="fig:low_dim_k=1_all_techniques",
    quick=Cost(cpu=150, gpu=30),
    full=Cost(cpu=90, gpu=70),
    measure=measure,
    draw=draw_seed_dots,
    findings=findings,
)
