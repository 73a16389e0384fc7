"""Both CIFAR networks with the canary at every k-th step: F2a and F2b."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit.curves import gaussian_epsilon
from dpaudit_paper.networks import TITLES, flipped_labels, one_training
from dpaudit_paper.readings import DELTA, Line, final_rows
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

SIGMA = 4


def lines_of(setting: Setting, period: int) -> Iterator[Line]:
    """A_GC-R and A_L on the ConvNet and the ResNet18 at C = 1."""
    for model, title in TITLES.items():
        crafted = one_training(setting, model, period=period)
        yield Line(series=f"{title}, A_GC-R", trainings=crafted, gpu=model == "resnet18")
        for name, flipped in flipped_labels(setting, model, period=period):
            heavy = setting.full or model == "resnet18"
            yield Line(series=f"{title}, {name}", trainings=flipped, gpu=heavy)


def findings(table: Table) -> str:
    """The proven bounds, beside the epsilon of an undisturbed canary."""
    last = final_rows(table)
    upper, steps = last.numbers("accountant")[0], int(last.numbers("steps")[0])
    period = int(last.numbers("period")[0])
    undisturbed = steps // period / (SIGMA * math.sqrt(steps))
    parts = [
        f"{row['series']} proves {row['gaussian_dp']:.2f} (paper's rule {row['paper_rule']:.2f}, "
        f"mu {row['mu']:.3f}, {row['protocol']})"
        for row in last
        if row["gaussian_dp"] is not None and row["paper_rule"] is not None
    ]
    return (
        f"At k = {period} and T = {steps:,} the accountant still says {upper:.3f}. "
        + "; ".join(parts)
        + f". If genuine gradients neither amplify nor reduce the canary, mu = {undisturbed:.3f} "
        f"and epsilon = {gaussian_epsilon(DELTA, undisturbed):.2f}; the gap to the accountant is "
        "due to the noise of the steps without the canary."
    )
