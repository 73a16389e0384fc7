"""Ours: what the final model reveals where hiding helps, and where it does not: H1, H2, H3."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpaudit.curves import gaussian_epsilon
from dpaudit.report.palette import ADVERSARIES
from dpaudit.upper_bounds import HiddenState, upper_bound
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.figures.cifar10 import PERIODS, at_periods
from dpaudit_paper.landscapes.exact import exact_privacy
from dpaudit_paper.landscapes.lipschitz_maps import (
    FINAL,
    SEARCH,
    SmoothReadingWells,
    best_linear_maps,
    best_reading_wells,
    final_epsilon,
)
from dpaudit_paper.landscapes.moving_threshold import fitted_moving_threshold
from dpaudit_paper.landscapes.one_insertion import advantage, at_most
from dpaudit_paper.landscapes.process import LandscapeProcess, Scaling
from dpaudit_paper.landscapes.reading_wells import ReadingWells
from dpaudit_paper.landscapes.shapes import Constant
from dpaudit_paper.table import Row, Table, Value
from dpaudit_paper.trainings import DELTA, mu_by_moments, readings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.base import Setting


SIGMA, INSERTIONS = 4.0, 250

SERIES = {
    "logistic": ("logistic regression", "o", style.BLUE),
    "softmax-head": ("softmax head", "s", style.GREEN),
    "convnet": ("ConvNet, A_GC-R (F1a, F2a, F2b)", "v", ADVERSARIES["random-dimension"]),
    "crafted-network": ("crafted ReLU network", "D", style.RED),
}

LINES = (
    ("hidden_state", "-", "hidden-state accountant, c = 1"),
    ("accountant", "-.", "standard accountant"),
)


# H1: convex presets, where hiding helps, and a crafted network, where it does not.


def measure_h1(setting: Setting) -> Table:
    """Audits of three presets and of the ConvNet at k = 1, 5 and 25, beside the upper bounds."""
    rows: list[Row] = []
    for trainings in at_periods(setting):
        scores, period = trainings.play(setting).scores, trainings.period
        bound = readings(scores, seed=setting.seed)["gaussian_dp"]
        upper = _upper(period, None)
        rows.append({"series": "convnet", "period": period, "gaussian_dp": bound, **upper})
    for name in ("logistic", "softmax-head", "crafted-network"):
        for period in setting.choose(quick=(1, 5), full=PERIODS):
            if name != "crafted-network" or period > 1:
                rows.append(_audited(setting, name, period, 0.0))
    if setting.full:
        rows += [_audited(setting, "logistic", period, 0.01) for period in (5, 25)]
    return Table.of(rows)


def _audited(setting: Setting, name: str, period: int, decay: float) -> Row:
    from dpaudit.adversaries import RareFeature
    from dpaudit.audits import audit
    from dpaudit.engine import Speed
    from dpaudit.mechanisms.dpsgd import Insertion
    from dpaudit.presets import preset

    training = preset(name).training(steps=INSERTIONS * period, period=period)
    training = dataclasses.replace(training, weight_decay=decay)
    constant = None if training.smoothness is None else training.smoothness.step_lipschitz(training)
    canaries = setting.choose(quick=1 if constant is None else 16, full=1)
    result = audit(
        training,
        RareFeature(),
        runs=setting.choose(quick=400 if constant is None else 60, full=5000),
        canaries=canaries,
        insertion=Insertion(period=period),
        seed=setting.seed + 1,
        confirm=False,
        name=f"H1 {name} k={period} decay={decay:g} {setting.scale} seed={setting.seed}",
        store=setting.store,
        speed=Speed(device=setting.device),
        progress=setting.progress,
        executor=setting.executor,
        reuse=True,
        anyway=True,
    )
    setting.ledger.add(f"{name}, k = {period}, weight decay {decay:g}", result)
    scores = result.scores
    mu = mu_by_moments(scores) or math.nan
    return {
        "series": name,
        "period": period,
        "weight_decay": decay,
        "step_lipschitz": constant,
        "scores": len(scores),
        "mu": mu,
        "standard_error": math.sqrt(4 / len(scores) + mu**2 / (2 * len(scores))),
        **readings(scores, delta=DELTA),
        **_upper(period, constant),
        "exact_chain": _chain(period) if name == "crafted-network" else None,
    }


def _chain(period: int) -> float:
    """The exact epsilon of the cell in which the crafted network's position ends."""
    from dpaudit.presets import preset
    from dpaudit_paper.crafted_network import CraftedDesign

    chosen = preset("crafted-network")
    design = CraftedDesign.fitted(
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        clip_norm=chosen.clip_norm,
        noise_multiplier=SIGMA,
    )
    wells = ReadingWells(period=period, width=design.width, unit=design.unit, most=design.most)
    return wells.after(INSERTIONS, noise_multiplier=SIGMA).epsilon(DELTA)


def _upper(period: int, constant: float | None) -> dict[str, Value]:
    accountant = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS) / SIGMA)
    if constant is None:
        return {"accountant": accountant, "hidden_state": None, "hidden_state_mu": None}
    bound = upper_bound(
        noise_multiplier=SIGMA,
        steps=INSERTIONS * period,
        delta=DELTA,
        hidden_state=HiddenState(period=period, step_lipschitz=constant),
        accountant="hidden-state-lipschitz",
    )
    return {"accountant": accountant, "hidden_state": bound.epsilon, "hidden_state_mu": bound.mu}


def draw_h1(table: Table) -> Drawing:
    """Lower bounds over the period, between the two upper bounds."""
    figure, (axis,) = style.new_figure(width=style.PAGE, height=3.2)
    plain = [row for row in table if not row["weight_decay"]]
    for place, (name, (label, marker, colour)) in enumerate(SERIES.items()):
        shown = [row for row in plain if row["series"] == name]
        at = [PERIODS.index(int(str(row["period"]))) + 0.08 * (place - 1.5) for row in shown]
        values = [float(str(row["gaussian_dp"])) for row in shown]
        axis.plot(at, values, marker, color=colour, ms=6, linestyle="none", label=label)
    exact = [row for row in plain if row.get("exact_chain") is not None]
    axis.plot(
        [PERIODS.index(int(str(row["period"]))) + 0.12 for row in exact],
        [float(str(row["exact_chain"])) for row in exact],
        "_",
        color=style.RED,
        ms=12,
        label="crafted network, exact chain",
    )
    for place, period in enumerate(PERIODS):
        bounds = _upper(period, 1.0)
        for column, line, label in LINES:
            axis.plot(
                [place - 0.3, place + 0.3],
                [float(str(bounds[column]))] * 2,
                color=style.GREY,
                linestyle=line,
                label=label if place == 0 else None,
                zorder=1,
            )
    axis.set_xticks(range(len(PERIODS)), [f"k = {period}" for period in PERIODS])
    axis.set(ylabel="epsilon at delta = 1e-5", ylim=(0, 26))
    axis.set_title("lower bounds of the audits (gaussian-dp, 95 %) and upper bounds")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


H1 = Figure(
    id="H1",
    title="does hiding help? convex presets and a crafted network",
    label="",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=155, gpu=70),
    full=Cost(cpu=None, gpu=265),
    trainings=at_periods,
    measure=measure_h1,
    draw=draw_h1,
)


# H2: epsilon of the final model against the Lipschitz constant of a step.

CONSTANTS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 1e3)

_NO_EXCESS = 2e-3
"""Where c = 1 is drawn, for which a logarithmic axis of c - 1 has no place."""

COLOURS = {5: style.BLUE, 25: style.ORANGE}


MOST_LINEAR, LEAST_WELLS = 4.0, 3.0
"""Beyond the first, the reach limits the gains; below the second, no ramps fit into a cell."""


def measure_h2(setting: Setting) -> Table:
    """The upper bound, and the exact epsilon of the strongest landscape found, at every constant.

    A landscape for one constant is allowed at every larger one. Wells are searched at the first
    period: what they keep hardly depends on it.
    """
    rows: list[Row] = []
    wells_at: dict[float, SmoothReadingWells] = {}
    for period in setting.choose(quick=(5,), full=tuple(COLOURS)):
        process = LandscapeProcess(
            noise_multiplier=SIGMA,
            batch_size=128,
            steps=INSERTIONS * period,
            period=period,
            scaling="dpsgd",
            landscape=Constant(),
        )
        best: Row = {"lower": 0.0}
        for constant in setting.choose(quick=CONSTANTS[:9:2], full=CONSTANTS):
            upper = upper_bound(
                noise_multiplier=SIGMA,
                steps=process.steps,
                delta=DELTA,
                hidden_state=HiddenState(period=period, step_lipschitz=constant),
                accountant="hidden-state-lipschitz",
            )
            rivals: list[Row] = []
            if constant <= MOST_LINEAR:
                rivals.append(_linear(process, constant))
            if constant >= LEAST_WELLS:
                wells = wells_at.get(constant)
                if wells is None:
                    wells = best_reading_wells(process, lipschitz=constant, delta=DELTA)
                if wells is not None:
                    wells_at[constant] = wells = dataclasses.replace(wells, period=period)
                    rivals.append(_wells(process, wells))
            best = max([best, *rivals], key=lambda row: float(str(row["lower"])))
            if setting.progress is not None:
                setting.progress.notice(f"k = {period}, c = {constant:g}: {best['lower']:.3f}")
            rows.append(
                {
                    "period": period,
                    "step_lipschitz": constant,
                    "upper": upper.epsilon,
                    "upper_mu": upper.mu,
                    **dict.fromkeys(("speed", "radius", "width", "unit", "most")),
                    **best,
                }
            )
    return Table.of(rows)


def _linear(process: LandscapeProcess, constant: float) -> Row:
    maps = best_linear_maps(process, lipschitz=constant, delta=DELTA)
    return {
        "landscape": "linear maps",
        "speed": maps.speed,
        "radius": maps.radius,
        **_exact(process.with_landscape(maps)),
    }


def _wells(process: LandscapeProcess, wells: SmoothReadingWells) -> Row:
    return {
        "landscape": "reading wells",
        "width": wells.width,
        "unit": wells.unit,
        "most": wells.most,
        **_exact(process.with_landscape(wells)),
    }


def _exact(process: LandscapeProcess) -> Row:
    """Epsilon on the finer of two grids, and their relative disagreement."""
    rough, fine = (final_epsilon(process, delta=DELTA, resolution=each) for each in (SEARCH, FINAL))
    return {"lower": fine, "numerical_error": abs(fine / rough - 1)}


def draw_h2(table: Table) -> Drawing:
    """Both curves over c - 1."""
    figure, (axis,) = style.new_figure(width=style.PAGE, height=3.2)
    for period, colour in COLOURS.items():
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
    axis.set(xscale="log", xlabel="c - 1, with c the Lipschitz constant of a step", ylim=(0, 26))
    powers = [0.01, 0.1, 1, 10, 100, 1000]
    axis.set_xticks([_NO_EXCESS, *powers], ["0", *(f"{power:g}" for power in powers)])
    axis.set_ylabel("epsilon at delta = 1e-5")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


H2 = Figure(
    id="H2",
    title="epsilon against the smoothness of a step",
    label="",
    quick=Cost(cpu=100, gpu=100),
    full=Cost(cpu=600, gpu=600),
    measure=measure_h2,
    draw=draw_h2,
)


# H3: one insertion and clean steps, over all landscapes: both ends.

BATCH_SIZES = (1, 2, 4, 8, 16)


def measure_h3(setting: Setting) -> Table:
    """Both ends of epsilon after some numbers of steps, in both scalings."""
    rows: list[Row] = []
    scalings: tuple[Scaling, ...] = ("dpsgd", "paper")
    steps = setting.choose(quick=(2, 3, 25), full=(2, 3, 5, 10, 25))
    for sigma in setting.choose(quick=(1,), full=range(1, 9)):
        for scaling in scalings:
            for batch in setting.choose(quick=(1, 4), full=BATCH_SIZES):
                process = LandscapeProcess(
                    noise_multiplier=sigma,
                    batch_size=batch,
                    steps=steps[-1],
                    scaling=scaling,
                    landscape=Constant(),
                )
                rows += _both_ends(process, steps)
    return Table.of(rows)


def _both_ends(process: LandscapeProcess, steps: Iterable[int]) -> Iterator[Row]:
    most, gained = at_most(process, delta=DELTA), advantage(process)
    for count in steps:
        shorter = dataclasses.replace(process, steps=count)
        chosen = shorter.with_landscape(fitted_moving_threshold(shorter, delta=DELTA))
        exact = exact_privacy(chosen, delta=DELTA)
        yield {
            "scaling": process.scaling,
            "sigma": process.noise_multiplier,
            "batch_size": process.batch_size,
            "steps": count,
            "accountant": float(most[0]),
            "lower": float(exact.epsilon[-1]),
            "upper": float(most[count - 1]) * (1 + 1e-9),  # a table keeps ten digits
            "numerical_error": exact.error,
            "advantage": float(gained[count - 1]),
        }


def draw_h3(table: Table) -> Drawing:
    """Both ends after 25 steps over sigma, as a share of the accountant's epsilon."""
    figure, axes = style.new_figure(columns=2, width=style.PAGE, height=2.9)
    colours = (style.RED, style.ORANGE, style.GREEN, style.BLUE, style.GREY)
    titles = {"dpsgd": "DP-SGD's scaling", "paper": "the paper's scaling"}
    for axis, (scaling, title) in zip(axes, titles.items(), strict=True):
        for batch, colour in zip(BATCH_SIZES, colours, strict=True):
            rows = table.where(scaling=scaling, batch_size=batch, steps=25)
            if not len(rows):
                continue
            upper = np.array(rows.numbers("accountant"))
            ends = [np.array(rows.numbers(name)) / upper for name in ("lower", "upper")]
            axis.plot(rows.numbers("sigma"), ends[0], "o-", color=colour, label=f"B = {batch}")
            axis.plot(rows.numbers("sigma"), ends[1], "--", color=colour)
            axis.fill_between(rows.numbers("sigma"), *ends, color=colour, alpha=0.15, lw=0)
        axis.set(title=title, xlabel="noise multiplier sigma", ylim=(0, 1.05))
    axes[0].set_ylabel("epsilon(T = 25) / accountant")
    axes[1].legend(loc="lower left")
    return figure


H3 = Figure(
    id="H3",
    title="one insertion, then clean steps: both ends for all landscapes",
    label="",
    quick=Cost(cpu=40, gpu=40),
    full=Cost(cpu=800, gpu=600),
    measure=measure_h3,
    draw=draw_h3,
)
