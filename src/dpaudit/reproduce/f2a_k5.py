"""F2a: the CIFAR networks with the canary at every fifth step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.curves import draw_curves
from dpaudit.reproduce.periods import findings, measure_period
from dpaudit.reproduce.table import Table

if TYPE_CHECKING:
    from dpaudit.reproduce.setting import Setting


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
