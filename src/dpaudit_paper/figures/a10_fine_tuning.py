"""A10: fine-tuning: the head of a frozen AlexNet, beside a ConvNet trained from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit.adversaries import RandomDimension
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.networks import insertions, one_training
from dpaudit_paper.readings import Line, curves, final_rows
from dpaudit_paper.table import Table
from dpaudit_paper.trainings import Trainings

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

HEAD, TRAININGS, SCRATCH = "AlexNet head", "AlexNet head, many trainings", "ConvNet from scratch"


def measure(setting: Setting) -> Table:
    """The head by both protocols, and the ConvNet."""
    return curves(setting, lines(setting))


def lines(setting: Setting) -> Iterator[Line]:
    count = insertions(setting, 1)
    examples = setting.choose(quick=2000, full=0)
    common = Trainings(
        preset="alexnet-head",
        adversary=RandomDimension(),
        runs=1,
        canaries=20_000,
        seed=setting.seed,
        insertions=count,
        examples=examples,
    )
    yield Line(series=HEAD, trainings=common)
    yield Line(
        series=TRAININGS,
        trainings=Trainings(
            preset="alexnet-head",
            adversary=RandomDimension(),
            runs=setting.choose(quick=200, full=5000),
            seed=setting.seed,
            insertions=count,
            examples=examples,
        ),
    )
    yield Line(series=SCRATCH, trainings=one_training(setting, "convnet"))


def findings(table: Table) -> str:
    """Compare the audits of the head and of the whole network."""
    last = final_rows(table)
    head = last.where(series=HEAD)
    parts = [
        f"{name} {row.number('gaussian_dp'):.2f} (paper's rule {row.number('paper_rule'):.2f}, mu "
        f"{row.number('mu'):.3f}; {row.words('protocol')[0]})"
        for name in (HEAD, TRAININGS, SCRATCH)
        if len(row := last.where(series=name))
    ]
    return (
        f"Of the accountant's {last.numbers('accountant')[0]:.3f}: " + "; ".join(parts) + ". The "
        "head has 23,050 parameters on 2,304 frozen features of "
        f"{int(head.number('examples')):,} images; its mu is "
        f"{head.number('mu') / last.where(series=SCRATCH).number('mu'):.3f} times that of the "
        "network trained from scratch."
    )


FIGURE = Figure(
    id="A10",
    title="fine-tuning the head of a frozen AlexNet, k = 1",
    label="fig:finetuning",
    needs=frozenset({Need.CIFAR10, Need.WEIGHTS}),
    quick=Cost(cpu=80, gpu=30),
    full=Cost(cpu=1200, gpu=30),
    lines=lines,
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
