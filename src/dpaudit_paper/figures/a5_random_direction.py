"""A5: a crafted gradient in a random direction (A_CotS) beside one in a single dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension, RandomDirection, SimulatedDimension
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.housing import housing, seeds
from dpaudit_paper.readings import NAMES, Line, curves, final_rows
from dpaudit_paper.seed_dots import compared, draw_seed_dots, means
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting

ADVERSARIES: tuple[Adversary, ...] = (
    SimulatedDimension(),
    RandomDimension(),
    RandomDirection(),
    FlippedLabel(),
)


def measure(setting: Setting) -> Table:
    """The final models of every adversary under every seed."""
    return final_rows(
        curves(
            setting,
            (
                Line(series=NAMES[adversary.name], trainings=housing(adversary, setting, seed))
                for adversary in ADVERSARIES
                for seed in seeds(setting)
            ),
        )
    )


def findings(table: Table) -> str:
    """Compare the bounds, on average and paired by seed."""
    found, mu = means(table, "gaussian_dp"), means(table, "mu")
    listed = ", ".join(f"{name} {value:.2f} (mu {mu[name]:.3f})" for name, value in found.items())
    pairs = zip(
        table.where(series="A_GC-R").numbers("mu"),
        table.where(series="A_CotS").numbers("mu"),
        strict=True,
    )
    better = sum(r > c for r, c in pairs)
    count = len(table.where(series="A_GC-R"))
    return (
        f"Mean bound over {count} seeds: {listed}. Mean difference to A_CotS, paired by seed (the "
        "standard error follows the plus-minus sign, and 'decided' means significant at 95 %): "
        f"A_GC-S {compared(table, 'A_GC-S', 'A_CotS')}; A_GC-R "
        f"{compared(table, 'A_GC-R', 'A_CotS')} (its mu is the larger one under {better} of "
        f"{count} seeds); A_L {compared(table, 'A_L', 'A_CotS')}."
    )


FIGURE = Figure(
    id="A5",
    title="A_CotS against A_GC and A_L on Housing",
    label="fig:a_cots_sparse",
    quick=Cost(cpu=100, gpu=25),
    full=Cost(cpu=50, gpu=35),
    measure=measure,
    draw=draw_seed_dots,
    findings=findings,
)
