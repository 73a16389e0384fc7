"""Figures from trainings of the small network on Housing: F1c, A1, A5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension, RandomDirection, SimulatedDimension
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.drawing import draw_curves, draw_seed_dots
from dpaudit_paper.table import Table
from dpaudit_paper.trainings import NAMES, Line, curves, final_rows, housing, seeds

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.base import Setting

VARIANTS: dict[str, Adversary] = {
    "noiseless, per step": SimulatedDimension(),
    "noiseless, final model": SimulatedDimension(ranking="final-model"),
    "noisy, per step": SimulatedDimension(simulation="noisy"),
    "noisy, final model": SimulatedDimension(simulation="noisy", ranking="final-model"),
    "A_GC-R": RandomDimension(),
    "A_L": FlippedLabel(),
}


def _audited(setting: Setting, adversaries: Mapping[str, Adversary]) -> Table:
    """Every adversary under every seed."""
    return curves(
        setting,
        (
            Line(series=name, trainings=housing(adversary, setting, seed))
            for name, adversary in adversaries.items()
            for seed in seeds(setting)
        ),
    )


def _named(*adversaries: Adversary) -> dict[str, Adversary]:
    return {NAMES[adversary.name]: adversary for adversary in adversaries}


def measure_f1c(setting: Setting) -> Table:
    """A_GC-S, A_GC-R and A_L over training."""
    return _audited(setting, _named(SimulatedDimension(), RandomDimension(), FlippedLabel()))


def measure_a1(setting: Setting) -> Table:
    """The final models of the four ways A_GC-S may pick its dimension, beside A_GC-R and A_L."""
    return final_rows(_audited(setting, VARIANTS))


def measure_a5(setting: Setting) -> Table:
    """The final models under a gradient in a random direction (A_CotS) and in one dimension."""
    adversaries = (SimulatedDimension(), RandomDimension(), RandomDirection(), FlippedLabel())
    return final_rows(_audited(setting, _named(*adversaries)))


F1C = Figure(
    id="F1c",
    title="FCNN on Housing, k = 1, five seeds",
    label="fig:low_dim_k=1",
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=60, gpu=45),
    measure=measure_f1c,
    draw=draw_curves,
)


A1 = Figure(
    id="A1",
    title="the four variants of A_GC-S on Housing",
    label="fig:low_dim_k=1_all_techniques",
    quick=Cost(cpu=150, gpu=30),
    full=Cost(cpu=90, gpu=70),
    measure=measure_a1,
    draw=draw_seed_dots,
)


A5 = Figure(
    id="A5",
    title="A_CotS against A_GC and A_L on Housing",
    label="fig:a_cots_sparse",
    quick=Cost(cpu=100, gpu=25),
    full=Cost(cpu=50, gpu=35),
    measure=measure_a5,
    draw=draw_seed_dots,
)
