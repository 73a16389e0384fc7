"""P1 (ours): many trainings with one canary, or one training with many: do both agree?"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.networks import many_trainings, one_training
from dpaudit_paper.readings import Line, curves, final_rows, spread, standard_error
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

MANY, ONE = "many trainings, one canary", "one training, many canaries"


def measure(setting: Setting) -> Table:
    """The ConvNet at k = 1 by both protocols; the faster one with several seeds."""
    runs = setting.choose(quick=8, full=5000)
    many = Line(series=MANY, trainings=many_trainings(setting, "convnet", runs=runs))
    one = one_training(setting, "convnet")
    seeds = range(setting.seed, setting.seed + setting.choose(quick=1, full=5))
    ones = [Line(series=ONE, trainings=dataclasses.replace(one, seed=seed)) for seed in seeds]
    return curves(setting, [*ones, many])


def findings(table: Table) -> str:
    """The two mu by moments, in standard errors of their difference."""
    last = final_rows(table)
    one, many = last.where(series=ONE), last.where(series=MANY)
    means = [sum(rows.numbers("mu")) / len(rows) for rows in (one, many)]
    errors = [standard_error(rows) for rows in (one, many)]
    apart = abs(means[0] - means[1]) / math.hypot(*errors)
    times = f" under each of {len(one)} seeds" if len(one) > 1 else ""
    return (
        f"{one.words('protocol')[0]}{times}: mu by moments {means[0]:.3f} ± {errors[0]:.3f}, "
        f"bound {spread(one.numbers('gaussian_dp'))}. {many.words('protocol')[0]}: mu "
        f"{means[1]:.3f} ± {errors[1]:.3f}, bound {many.number('gaussian_dp'):.2f}. The two are "
        f"{apart:.1f} standard errors apart, and the accountant's epsilon is "
        f"{many.number('accountant'):.3f}."
    )


FIGURE = Figure(
    id="P1",
    title="one canary or many in a training, on the ConvNet",
    label="",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=None, gpu=100),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
