"""F2b: the CIFAR networks with the canary at every 25th step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.periods import findings, lines_of
from dpaudit_paper.readings import Line, curves
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting


def lines(setting: Setting) -> Iterator[Line]:
    """k = 25."""
    return lines_of(setting, 25)


def measure(setting: Setting) -> Table:
    """The rows of all lines."""
    return curves(setting, lines(setting))


FIGURE = Figure(
    id="F2b",
    title="ConvNet and ResNet18, k = 25",
    label="fig:k25_sub2",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=90, gpu=30),
    full=Cost(cpu=750, gpu=470),
    lines=lines,
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
