"""F1a: the ConvNet at three clipping norms, a canary at every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.clip_norms import findings, lines_of
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.readings import Line, curves
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting


def lines(setting: Setting) -> Iterator[Line]:
    """A_GC-R and A_L at C = 1, 2, 4."""
    return lines_of(setting, "convnet")


def measure(setting: Setting) -> Table:
    """The rows of all lines."""
    return curves(setting, lines(setting))


FIGURE = Figure(
    id="F1a",
    title="ConvNet on CIFAR-10, k = 1, C = 1, 2, 4",
    label="fig:k1_sub1",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=110, gpu=40),
    full=Cost(cpu=120, gpu=190),
    lines=lines,
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
