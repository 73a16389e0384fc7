"""F1b: the ResNet18 at three clipping norms, a canary at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.clip_norms import findings, measure_clip_norms
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting


def measure(setting: Setting) -> Table:
    """A_GC-R and A_L at C = 1, 2, 4."""
    return measure_clip_norms(setting, "resnet18")


FIGURE = Figure(
    id="F1b",
    title="ResNet18 on CIFAR-10, k = 1, C = 1, 2, 4",
    label="fig:k1_sub2",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=None, gpu=40),
    full=Cost(cpu=None, gpu=1080),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
