"""H2 (ours): epsilon of the final model against the Lipschitz constant of a step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpaudit.curves import gaussian_epsilon
from dpaudit.upper_bounds import HiddenState, upper_bound
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.landscapes import Constant, LandscapeProcess
from dpaudit_paper.readings import DELTA
from dpaudit_paper.smooth_wells import best_found, best_linear, simulated_mu
from dpaudit_paper.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

SIGMA, INSERTIONS, BATCH = 4.0, 250, 128
CONSTANTS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 1e3)
ESTIMATES = {"ConvNet": 1.0038, "ResNet18": 1.0162, "FCNN": 1.0244}
"""Largest norms of the Jacobian of an update along one training: estimates, not bounds. From
``benchmarks/step_lipschitz.py`` on an H200."""

_NO_EXCESS = 2e-3
"""Where c = 1 is drawn, for which a logarithmic axis of c - 1 has no place."""

PERIODS = {5: style.BLUE, 25: style.ORANGE}


def measure(setting: Setting) -> Table:
    """The upper bound, and the strongest landscape found, at every constant."""
    runs = setting.choose(quick=2_000, full=20_000)
    few = setting.choose(quick=1_000, full=5_000)
    setting.ledger.note(f"{runs:,} simulated runs for reading wells, {few:,} for linear maps")
    rows: list[Row] = []
    for period in PERIODS:
        process = LandscapeProcess(
            noise_multiplier=SIGMA,
            batch_size=BATCH,
            steps=INSERTIONS * period,
            period=period,
            scaling="dpsgd",
            landscape=Constant(),
        )
        flat = INSERTIONS / (SIGMA * math.sqrt(process.steps))
        for constant in CONSTANTS:
            hidden = HiddenState(period=period, step_lipschitz=constant)
            upper = upper_bound(
                noise_multiplier=SIGMA,
                steps=process.steps,
                delta=DELTA,
                hidden_state=hidden,
                accountant="hidden-state-lipschitz",
            )
            wells = best_found(process, constant, seed=setting.seed)
            found = 0.0
            if wells is not None:
                chosen = process.with_landscape(wells)
                found = simulated_mu(chosen, runs=runs, seed=setting.seed + 1)
            linear = best_linear(process, constant, runs=few, seed=setting.seed + 2)[1]
            mu = max(flat, found, linear)
            names = {flat: "flat", linear: "linear maps", found: "reading wells"}
            rows.append(
                {
                    "period": period,
                    "step_lipschitz": constant,
                    "upper": upper.epsilon,
                    "upper_mu": upper.mu,
                    "landscape": "flat" if mu == flat else names[mu],
                    "width": None if wells is None else wells.width,
                    "unit": None if wells is None else wells.unit,
                    "most": None if wells is None else wells.most,
                    "linear_mu": linear,
                    "mu": mu,
                    "lower": gaussian_epsilon(DELTA, mu),
                }
            )
    return Table.of(rows)


def draw(table: Table) -> Drawing:
    """Both curves over c - 1, with the estimates of the paper's networks."""
    figure, (axis,) = style.new_figure(width=style.PAGE, height=3.2)
    for period, colour in PERIODS.items():
        rows = table.where(period=period)
        excess = np.maximum(np.array(rows.numbers("step_lipschitz")) - 1, _NO_EXCESS)
        upper, lower = rows.numbers("upper"), rows.numbers("lower")
        axis.plot(excess, upper, color=colour, label=f"upper bound, k = {period}")
        axis.plot(
            excess, lower, "o", linestyle="--", color=colour, label=f"landscape found, k = {period}"
        )
        axis.fill_between(excess, lower, upper, color=colour, alpha=0.12, lw=0)
    axis.axhline(
        gaussian_epsilon(DELTA, math.sqrt(INSERTIONS) / SIGMA),
        color=style.GREY,
        linestyle="-.",
        label="standard accountant",
    )
    for name, constant in ESTIMATES.items():
        axis.axvline(constant - 1, color=style.GREY, linestyle=":", lw=0.9)
        axis.annotate(
            f"{name} (estimate)",
            (constant - 1, 11.0),
            xytext=(-1, 0),
            textcoords="offset points",
            ha="right",
            rotation=90,
            fontsize=6.5,
            color=style.GREY,
        )
    axis.set(xscale="log", xlabel="c - 1, with c the Lipschitz constant of a step", ylim=(0, 26))
    powers = [0.01, 0.1, 1, 10, 100, 1000]
    axis.set_xticks([_NO_EXCESS, *powers], ["0", *(f"{power:g}" for power in powers)])
    axis.set_ylabel("epsilon at delta = 1e-5")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def findings(table: Table) -> str:
    """How fast the amplification is lost."""
    parts = []
    for period in PERIODS:
        rows = table.where(period=period)
        chosen = [
            f"{row['lower']:.2f} and {row['upper']:.2f} at c = {row['step_lipschitz']:g}"
            for row in rows
            if row["step_lipschitz"] in (1.0, 1.1, 2.0, 4.0, 10.0, 1000.0)
        ]
        parts.append(f"k = {period}: " + ", ".join(chosen))
    estimates = ", ".join(f"{name} {value:.4f}" for name, value in ESTIMATES.items())
    return (
        "Epsilon of the strongest landscape found and the upper bound, at sigma = 4, B = 128 and "
        "250 insertions: " + "; ".join(parts) + ". Linear maps, which expand distances by c per "
        "step after an insertion and contract them before the next, would attain the upper bound "
        "at every c, if moves of any length were possible; at B = 128 they do for c near 1. "
        f"Estimated constants along one training: {estimates}; these are estimates from below and "
        "prove nothing. Lower values are the epsilon of a Gaussian with the mu of simulated runs."
    )


FIGURE = Figure(
    id="H2",
    title="epsilon against the smoothness of a step",
    label="",
    quick=Cost(cpu=60, gpu=60),
    full=Cost(cpu=240, gpu=240),
    measure=measure,
    draw=draw,
    findings=findings,
)
