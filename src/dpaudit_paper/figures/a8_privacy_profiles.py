"""A8: delta over epsilon for the ConvNet at k = 1, 5 and 25."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpaudit.curves import gaussian_delta
from dpaudit.lower_bounds import estimate, proven_curve
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.networks import one_training
from dpaudit_paper.readings import DELTA
from dpaudit_paper.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

PERIODS = (1, 5, 25)
SIGMA = 4
_SMALLEST = 1e-9


def measure(setting: Setting) -> Table:
    """One training with many canaries for each period, read at every epsilon."""
    rows: list[Row] = []
    for period in PERIODS:
        trainings = one_training(setting, "convnet", period=period)
        scores = trainings.play(setting).scores
        rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
        pilot = estimate(scores, delta=DELTA, method="gaussian-dp", seed=setting.seed)
        composed = math.sqrt(trainings.insertions) / SIGMA
        proven = proven_curve(scores)
        for epsilon in np.linspace(0, 30, 121):
            rows.append(
                {
                    "period": period,
                    "steps": trainings.steps,
                    "epsilon": float(epsilon),
                    "accountant": float(gaussian_delta(float(epsilon), composed)),
                    "paper_rule": float(gaussian_delta(float(epsilon), rule.mu or 0.0)),
                    "gaussian_dp": float(gaussian_delta(float(epsilon), pilot.mu or 0.0)),
                    "proven": float(proven.delta_at(float(epsilon))),
                    "mu_accountant": composed,
                    "mu_paper_rule": rule.mu,
                    "mu_gaussian_dp": pilot.mu,
                }
            )
    return Table.of(rows)


def draw(table: Table) -> Drawing:
    """One panel per period, delta on a logarithmic axis."""
    from matplotlib.lines import Line2D

    looks = {
        "accountant": (style.GREY, "-.", "accountant"),
        "paper_rule": (style.ORANGE, "--", "GDP, best threshold (paper)"),
        "gaussian_dp": (style.BLUE, "-", "GDP, pilot threshold"),
        "proven": (style.GREEN, ":", "assumption-free"),
    }
    figure, axes = style.new_figure(columns=len(PERIODS), width=style.PAGE, height=2.7)
    for axis, period in zip(axes, PERIODS, strict=True):
        rows = table.where(period=period)
        for column, (colour, line, _) in looks.items():
            delta = np.array(rows.numbers(column))
            delta[delta < _SMALLEST] = np.nan
            axis.plot(rows.numbers("epsilon"), delta, color=colour, linestyle=line)
        axis.axhline(DELTA, color=style.GREY, lw=0.5)
        axis.set(yscale="log", ylim=(_SMALLEST, 1.5), xlabel="epsilon", title=f"k = {period}")
    axes[0].set_ylabel("delta")
    handles = [
        Line2D([], [], color=colour, linestyle=line, label=label)  # type: ignore[arg-type]
        for colour, line, label in looks.values()
    ]
    handles.append(Line2D([], [], color=style.GREY, lw=0.5, label="delta = 1e-5"))
    style.legend_below(figure, handles, columns=5)
    return figure


def findings(table: Table) -> str:
    """Compare the measured profiles by their mu."""
    parts = []
    for period in PERIODS:
        row = table.where(period=period, epsilon=table.where(period=period).column("epsilon")[0])
        parts.append(
            f"k = {period}: {row.number('mu_gaussian_dp'):.3f} (paper's rule "
            f"{row.number('mu_paper_rule'):.3f}) of {row.number('mu_accountant'):.3f}"
        )
    ends = ", ".join(_end(table.where(period=period)) for period in PERIODS)
    return (
        "If the trade-off curves are Gaussian, mu determines the whole profile. The bound on mu, "
        "beside the accountant's: " + "; ".join(parts) + ". The assumption-free curve ends at the "
        f"largest epsilon that this many scores can prove: {ends}."
    )


def _end(rows: Table) -> str:
    """The largest epsilon at which some delta is proven, and its period."""
    proven = zip(rows.numbers("epsilon"), rows.numbers("proven"), strict=True)
    last = max((epsilon for epsilon, delta in proven if delta > 0), default=0.0)
    return f"{last:.2f} at k = {int(rows.numbers('period')[0])}"


FIGURE = Figure(
    id="A8",
    title="privacy profiles of the ConvNet, k = 1, 5, 25",
    label="fig:privacy_profile",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=45, gpu=10),
    full=Cost(cpu=760, gpu=85),
    measure=measure,
    draw=draw,
    findings=findings,
)
