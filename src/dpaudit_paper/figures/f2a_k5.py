"""F2a: the CIFAR networks with the canary at every fifth step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.periods import findings, measure_period
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting


def measure(setting: Setting) -> Table:
    """k = 5."""
    return measure_period(setting, 5)


FIGURE = Figure(
    id="F2a",
    title="ConvNet and ResNet18, k = 5",
    label="fig:k5_sub1",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=90, gpu=30),
    full=Cost(cpu=150, gpu=190),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
