"""Figures from trainings of the small network on Housing: F1c, A1, A5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension, RandomDirection, SimulatedDimension
from dpaudit_paper.base import Cost
from dpaudit_paper.drawing import curve_figure, draw_seed_dots
from dpaudit_paper.trainings import NAMES, Line, final_rows, housing, seeds

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


def lines(adversaries: Mapping[str, Adversary], setting: Setting) -> Iterator[Line]:
    """Every adversary under every seed."""
    for name, adversary in adversaries.items():
        for seed in seeds(setting):
            yield Line(series=name, trainings=housing(adversary, setting, seed))


def _named(*adversaries: Adversary) -> dict[str, Adversary]:
    return {NAMES[adversary.name]: adversary for adversary in adversaries}


# F1c: A_GC-S, A_GC-R and A_L over training.

F1C = curve_figure(
    partial(lines, _named(SimulatedDimension(), RandomDimension(), FlippedLabel())),
    id="F1c",
    title="FCNN on Housing, k = 1",
    label="fig:low_dim_k=1",
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=60, gpu=45),
)


# A1: the final models of the four ways A_GC-S may pick its dimension, beside A_GC-R and A_L.

A1 = curve_figure(
    partial(lines, VARIANTS),
    finish=final_rows,
    draw=draw_seed_dots,
    id="A1",
    title="the four variants of A_GC-S on Housing",
    label="fig:low_dim_k=1_all_techniques",
    quick=Cost(cpu=150, gpu=30),
    full=Cost(cpu=90, gpu=70),
)


# A5: the final models under a gradient in a random direction (A_CotS) and in one dimension.

A5 = curve_figure(
    partial(
        lines,
        _named(SimulatedDimension(), RandomDimension(), RandomDirection(), FlippedLabel()),
    ),
    finish=final_rows,
    draw=draw_seed_dots,
    id="A5",
    title="A_CotS against A_GC and A_L on Housing",
    label="fig:a_cots_sparse",
    quick=Cost(cpu=100, gpu=25),
    full=Cost(cpu=50, gpu=35),
)
