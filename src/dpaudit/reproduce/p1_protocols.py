"""P1 (ours): many trainings with one canary, or one training with many: do both agree?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.curves import draw_curves
from dpaudit.reproduce.networks import many_trainings, one_training
from dpaudit.reproduce.readings import Line, curves, final_rows
from dpaudit.reproduce.table import Table

if TYPE_CHECKING:
    from dpaudit.reproduce.setting import Setting

MANY, ONE = "many trainings, one canary", "one training, many canaries"


def measure(setting: Setting) -> Table:
    """The ConvNet at k = 1 by either protocol."""
    runs = setting.choose(quick=8, full=5000)
    return curves(
        setting,
        (
            Line(series=ONE, trainings=one_training(setting, "convnet")),
            Line(series=MANY, trainings=many_trainings(setting, "convnet", runs=runs)),
        ),
    )


def findings(table: Table) -> str:
    """The two mu by moments, in standard errors of their difference."""
    last = final_rows(table)
    one, many = last.where(series=ONE), last.where(series=MANY)
    errors = [_standard_error(row.number("mu"), _scores(row)) for row in (one, many)]
    apart = abs(one.number("mu") - many.number("mu")) / math.hypot(*errors)
    return (
        f"{one.words('protocol')[0]}: mu by moments {one.number('mu'):.3f} ± {errors[0]:.3f}, "
        f"bound {one.number('valid'):.2f}. {many.words('protocol')[0]}: mu "
        f"{many.number('mu'):.3f} ± {errors[1]:.3f}, bound {many.number('valid'):.2f}. The two are "
        f"{apart:.1f} standard errors apart, and the accountant's epsilon is "
        f"{one.number('accountant'):.3f}."
    )


def _scores(row: Table) -> float:
    return row.number("runs") * row.number("canaries")


def _standard_error(mu: float, scores: float) -> float:
    """Of a standardised difference of means between two halves."""
    return math.sqrt((4 + mu**2 / 2) / scores)


FIGURE = Figure(
    id="P1",
    title="one canary or many in a training, on the ConvNet",
    label="",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=None, gpu=60),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
