"""A9: what is left of A_GC-R when the adversary does not know the initialisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpaudit.adversaries import RandomDimension, StartDistribution
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.curves import draw_curves
from dpaudit_paper.networks import insertions
from dpaudit_paper.readings import Line, curves, final_rows, spread, standard_error
from dpaudit_paper.start_distributions import (
    RandomBias,
    exact_epsilon,
    moved_and_noise,
    normal_epsilon,
)
from dpaudit_paper.table import Row, Table
from dpaudit_paper.trainings import Trainings, Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

RULES: tuple[Weights, ...] = ("xavier", "kaiming")
KNOWN, UNKNOWN, BIASES = "known start", "unknown start", "unknown start, biases only"
MANY, KNOWN_DISTRIBUTION = "unknown start, many trainings", "unknown start, known distribution"


def measure(setting: Setting) -> Table:
    """Both rules, start known or not; the unknown one also for biases, and training by training."""
    return Table.of([{**row, **_exact(row)} for row in curves(setting, lines(setting))])


def _exact(row: Row) -> Row:
    """The exact epsilon of a weight that only noise disturbs."""
    rule = next(rule for rule in RULES if rule == row["weights"])
    steps = round(float(row["steps"] or 0))
    return {"exact": exact_epsilon(rule, steps), "exact_if_normal": normal_epsilon(rule, steps)}


def lines(setting: Setting) -> Iterator[Line]:
    for rule in RULES:
        panel = f"{rule.title()} weights"
        known = Trainings(
            preset="convnet",
            adversary=RandomDimension(),
            runs=1,
            canaries=20_000,
            seed=setting.seed,
            insertions=insertions(setting, 1),
            weights=rule,
        )
        unknown = dataclasses.replace(known, known_start=False)
        by_ratio = dataclasses.replace(
            unknown, adversary=StartDistribution(), runs=setting.choose(quick=1, full=20)
        )
        biases = dataclasses.replace(
            unknown, adversary=RandomBias(), runs=setting.choose(quick=2, full=20), canaries=200
        )
        # The paper's protocol: a start drawn anew in each of many trainings.
        many = dataclasses.replace(unknown, runs=2000, canaries=1)
        yield Line(panel=panel, series=KNOWN, trainings=known)
        yield Line(panel=panel, series=UNKNOWN, trainings=unknown)
        yield Line(panel=panel, series=KNOWN_DISTRIBUTION, trainings=by_ratio)
        yield Line(panel=panel, series=BIASES, trainings=biases)
        if setting.full:
            yield Line(panel=panel, series=MANY, trainings=many, gpu=True)


def draw(table: Table) -> Drawing:
    """The curves, and the exact epsilon of a weight that only noise disturbs."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"color": style.GREY, "lw": 1.3, "linestyle": (0, (1, 1))}
    label = "exact, one weight, unknown start"
    drawing = draw_curves(table, height=3.2, further=[Line2D([], [], label=label, **look)])
    for axis, panel in zip(drawing.axes, table.words("panel"), strict=True):
        unknown = table.where(panel=panel, series=UNKNOWN)
        steps, exact = unknown.numbers("steps"), unknown.numbers("exact")
        axis.plot(steps, exact, **look)
    return drawing


def findings(table: Table) -> str:
    """Compare the known and the unknown initialisation."""
    last = final_rows(table)
    parts = []
    for panel in last.words("panel"):
        found = []
        for series in (KNOWN, UNKNOWN, MANY, BIASES, KNOWN_DISTRIBUTION):
            row = last.where(panel=panel, series=series)
            if len(row):
                found.append(
                    f"{series} {spread(row.numbers('gaussian_dp'))} (paper's rule "
                    f"{spread(row.numbers('paper_rule'))}, assumption-free "
                    f"{spread(row.numbers('clopper_pearson'))}, mu {row.number('mu'):.3f} ± "
                    f"{standard_error(row):.3f})"
                )
        parts.append(f"{panel}: " + ", ".join(found))
    steps = int(max(last.numbers("steps")))
    moved, _ = moved_and_noise(steps)
    exact, normal = (
        ", ".join(f"{value:.2f}" for value in last.where(series=UNKNOWN).numbers(column))
        for column in ("exact", "exact_if_normal")
    )
    return (
        "; ".join(parts)
        + f". A canary moves its weight by T eta C / B = {moved:.3f} in {steps} steps; both rules "
        "draw weights with a deviation several times that, so A_GC-R's score says little where "
        "the start is drawn anew in every training. Biases start at zero by both rules, and "
        "canaries there keep most of their mu. The canary of a weight is still not hidden: both "
        "rules, in torch's uniform version, draw weights between two limits, and a weight beyond a "
        f"limit reveals its canary. The exact epsilon is {exact} (Xavier, Kaiming) for a weight of "
        "the largest layer that only noise disturbs; the adversary start-distribution, which "
        "scores by the likelihood ratio, proves part of it. For weights from a normal "
        f"distribution of the same standard deviation it would be {normal}. An unknown start that "
        "is the same in all trainings of an audit would shift every score by the same amount, and "
        "a threshold chosen on the scores would adapt to it. What follows the plus-minus sign is "
        "one standard error."
    )


FIGURE = Figure(
    id="A9",
    title="unknown initialisation: Xavier and Kaiming",
    label="fig:unknown_init",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=85, gpu=35),
    full=Cost(cpu=650, gpu=170),
    lines=lines,
    measure=measure,
    draw=draw,
    findings=findings,
)
