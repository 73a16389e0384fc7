"""A2: does simulating help A_GC on the large networks? Both adversaries at k = 1 and 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit.adversaries import RandomDimension, SimulatedDimension
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.networks import TITLES, one_training
from dpaudit_paper.readings import NAMES, Line, curves, final_rows
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting


def measure(setting: Setting) -> Table:
    """One training with many canaries for each network, adversary and period."""
    return curves(setting, lines(setting))


def lines(setting: Setting) -> Iterator[Line]:
    adversaries: tuple[Adversary, ...] = (RandomDimension(), SimulatedDimension())
    for period in (1, 5):
        for model, title in TITLES.items():
            for adversary in adversaries:
                yield Line(
                    panel=f"k = {period}",
                    series=f"{title}, {NAMES[adversary.name]}",
                    trainings=one_training(setting, model, adversary=adversary, period=period),
                    gpu=model == "resnet18",
                )


def findings(table: Table) -> str:
    """Both adversaries side by side."""
    last = final_rows(table)
    parts, changes = [], []
    for panel in last.words("panel"):
        for title in TITLES.values():
            random = last.where(panel=panel, series=f"{title}, A_GC-R")
            simulated = last.where(panel=panel, series=f"{title}, A_GC-S")
            if len(random) and len(simulated):
                changes.append(abs(simulated.number("mu") / random.number("mu") - 1))
                parts.append(
                    f"{title} at {panel}: A_GC-R {random.number('gaussian_dp'):.2f} (mu "
                    f"{random.number('mu'):.3f}), A_GC-S {simulated.number('gaussian_dp'):.2f} (mu "
                    f"{simulated.number('mu'):.3f})"
                )
    return (
        "On networks with far more parameters than examples in a batch, picking dimensions by "
        f"simulation changes mu by at most {max(changes):.1%}: " + "; ".join(parts) + "."
    )


FIGURE = Figure(
    id="A2",
    title="A_GC-S against A_GC-R on the large networks, k = 1 and 5",
    label="fig:a_gc_s_vs_a_gc_r",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=60, gpu=30),
    full=Cost(cpu=220, gpu=180),
    lines=lines,
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
