"""Figures of the paper's landscape adversary: F3a, F3b, A3b, A4, A7, A11.

A_S inserts one canary in the first step on a threshold landscape; the position after T steps is the
score. The exact epsilon needs no runs; the audit simulates runs, as in the paper.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpaudit.curves import gaussian_tradeoff
from dpaudit.lower_bounds import estimate
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.drawing import draw_over_steps, draw_tradeoffs, thinned_errors
from dpaudit_paper.landscapes.exact import ExactPrivacy, exact_privacy, threshold_search
from dpaudit_paper.landscapes.named import named_landscape
from dpaudit_paper.landscapes.process import LandscapeProcess, Scaling
from dpaudit_paper.landscapes.shapes import Threshold
from dpaudit_paper.landscapes.simulation import simulate
from dpaudit_paper.table import Row, Table, Value
from dpaudit_paper.trainings import DELTA, readings

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.base import Setting

BATCH_SIZES = (1, 2, 4, 8, 16)

NOISE_MULTIPLIERS = (1, 2, 3, 4, 5, 6, 7, 8)

STEPS = 25

AUDITED = (1, 2, 3, 5, 10, 15, 20, 25)
"""The steps at which runs are simulated; the exact curve has every step."""

AUDITS = ("paper_rule", "gaussian_dp", "clopper_pearson")


def threshold_process(
    sigma: float, batch: int, steps: int = STEPS, scaling: Scaling = "paper"
) -> LandscapeProcess:
    """The paper's landscape, with the corrected sign."""
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        scaling=scaling,
        landscape=Threshold(),
    )


def measure_grid(
    setting: Setting,
    noise_multipliers: Sequence[float],
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    audited: Sequence[int] = AUDITED,
    scalings: Sequence[Scaling] = ("paper", "dpsgd"),
) -> Table:
    """One row for each process and step.

    The audit has 200,000 runs at every step in full: at sigma = 8, 5,000 runs cannot distinguish
    an epsilon of 0.43 from 0. It is done in the paper's scaling only.
    """
    runs = setting.choose(quick=20_000, full=200_000)
    setting.ledger.note(f"{runs:,} simulated runs for each audited step")
    rows: list[Row] = []
    for scaling in scalings:
        for sigma in noise_multipliers:
            for batch in batch_sizes:
                rows += _process_rows(
                    threshold_process(sigma, batch, scaling=scaling),
                    runs=runs,
                    seed=setting.seed,
                    audited=audited if scaling == "paper" else (),
                )
    return Table.of(rows)


def _process_rows(
    process: LandscapeProcess, *, runs: int, seed: int, audited: Sequence[int]
) -> list[Row]:
    exact = _exact(process)
    rows: list[Row] = []
    for step in range(1, process.steps + 1):
        row: dict[str, Value] = {
            "scaling": process.scaling,
            "sigma": process.noise_multiplier,
            "batch_size": process.batch_size,
            "steps": step,
            "accountant": exact.accountant,
            "exact": float(exact.epsilon[step - 1]),
            "gdp_rule": float(exact.gdp_rule[step - 1]),
            "numerical_error": exact.error,
            **dict.fromkeys(("runs", *AUDITS)),
        }
        if step in audited:
            row |= _audited(process, step, runs, seed)
        rows.append(row)
    return rows


# Three figures look at the same processes; in one session they are computed once.
@functools.cache
def _exact(process: LandscapeProcess) -> ExactPrivacy:
    return exact_privacy(process, delta=DELTA)


@functools.cache
def _audited(process: LandscapeProcess, step: int, runs: int, seed: int) -> dict[str, Value]:
    scores = simulate(dataclasses.replace(process, steps=step), runs=runs, seed=seed)
    bounds = readings(scores, delta=DELTA, seed=seed)
    return {"runs": runs} | {name: bounds[name] for name in AUDITS}


# F3a, A11: what the crafted landscape keeps over 25 steps.


def measure_a11(setting: Setting) -> Table:
    """Every noise multiplier at every batch size."""
    audited = setting.choose(quick=(1, 5, 25), full=AUDITED)
    return measure_grid(setting, NOISE_MULTIPLIERS, audited=audited)


F3A = Figure(
    id="F3a",
    title="A_S over T = 1 … 25, sigma = 1 and 8",
    label="fig:auditing_t=2",
    quick=Cost(cpu=20, gpu=20),
    full=Cost(cpu=30, gpu=30),
    measure=lambda setting: measure_grid(setting, (1, 8)),
    draw=lambda table: draw_over_steps(table, (1, 8), columns=2, height=3.3),
)


A11 = Figure(
    id="A11",
    title="A_S over T = 1 … 25 for every sigma",
    label="fig:detailed_results_6",
    quick=Cost(cpu=45, gpu=60),
    full=Cost(cpu=90, gpu=60),
    measure=measure_a11,
    draw=lambda table: draw_over_steps(table, NOISE_MULTIPLIERS, columns=4, height=4.6),
)


# F3b: the share of the first step's epsilon that is left after 25, over noise and batch size.


PANELS = (("paper_rule", "audit, the paper's rule"), ("exact", "exact"))


def measure_f3b(setting: Setting) -> Table:
    """The first and the last step of every process."""
    table = measure_grid(setting, NOISE_MULTIPLIERS, audited=(1, STEPS))
    rows = tuple(
        row
        for row, step in zip(table.rows, table.column("steps"), strict=True)
        if step in (1, STEPS)
    )
    return Table(columns=table.columns, rows=rows)


def ratios(table: Table, column: str, scaling: str = "paper") -> NDArray[np.float64]:
    """epsilon(T = 25) / epsilon(T = 1), noise multipliers down and batch sizes across."""
    rows = table.where(scaling=scaling)

    def cell(sigma: int, batch: int) -> float:
        process = rows.where(sigma=sigma, batch_size=batch)
        first = process.where(steps=1).number(column)
        return process.where(steps=STEPS).number(column) / first if first > 0 else float("nan")

    return np.array([[cell(s, b) for b in BATCH_SIZES] for s in NOISE_MULTIPLIERS])


def draw_f3b(table: Table) -> Drawing:
    """The audit's map beside the exact one."""
    figure, axes = style.new_figure(columns=2, width=style.PAGE, height=3.6)
    for axis, (column, title) in zip(axes, PANELS, strict=True):
        ratio = ratios(table, column)
        image = axis.imshow(ratio, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        axis.grid(visible=False)
        axis.set(title=title, xlabel="batch size B")
        axis.set_xticks(range(len(BATCH_SIZES)), [str(batch) for batch in BATCH_SIZES])
        axis.set_yticks(range(len(NOISE_MULTIPLIERS)), [str(sigma) for sigma in NOISE_MULTIPLIERS])
        for (row, place), value in np.ndenumerate(ratio):
            axis.text(
                place,
                row,
                "–" if np.isnan(value) else f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if value < 0.55 else "black",
            )
    axes[0].set_ylabel("noise multiplier sigma")
    figure.colorbar(image, ax=axes, label="epsilon(T = 25) / epsilon(T = 1)", shrink=0.9)
    return figure


F3B = Figure(
    id="F3b",
    title="heat map of epsilon(T = 25) / epsilon(T = 1)",
    label="fig:amplification_rate",
    quick=Cost(cpu=40, gpu=40),
    full=Cost(cpu=40, gpu=40),
    measure=measure_f3b,
    draw=draw_f3b,
)


# A3b: the trade-off curve at T = 25, sigma = 4, beside its Gaussian approximation.


def measure_a3b(setting: Setting) -> Table:
    """Observed error rates, the exact curve, and the Gaussian curve of the paper's rule."""
    runs = setting.choose(quick=20_000, full=1_000_000)
    rows: list[Row] = []
    sigma = 4
    for batch in (1, 16):
        process = threshold_process(sigma, batch)
        exact = exact_privacy(process, delta=DELTA)
        scores = simulate(process, runs=runs, seed=setting.seed)
        rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
        panel = f"sigma = {sigma}, B = {batch}, T = {process.steps}"
        facts: dict[str, Value] = {
            "panel": panel,
            "runs": runs,
            "mu_rule": rule.mu,
            "epsilon_rule": rule.epsilon,
            "epsilon_exact": float(exact.epsilon[-1]),
        }
        alpha, beta = thinned_errors(scores)
        rows += [
            {**facts, "curve": "observed", "alpha": a, "beta": b}
            for a, b in zip(alpha, beta, strict=True)
        ]
        grid = np.concatenate([np.geomspace(1e-8, 0.02, 60), np.linspace(0.03, 0.99, 60)])
        gaussian = gaussian_tradeoff(grid, rule.mu or 0.0)
        truth_alpha, truth_beta = exact.last.tradeoff()
        # Power against rate is close to a power law, so it is interpolated in logarithms.
        inside = (truth_alpha > 0) & (truth_beta < 1)
        power = np.interp(np.log(grid), np.log(truth_alpha[inside]), np.log1p(-truth_beta[inside]))
        truth = -np.expm1(power)
        for a, g, t in zip(grid, gaussian, truth, strict=True):
            rows.append({**facts, "curve": "Gaussian", "alpha": a, "beta": float(g)})
            rows.append({**facts, "curve": "exact", "alpha": a, "beta": float(t)})
    return Table.of(rows)


A3B = Figure(
    id="A3b",
    title="trade-off curve of A_S against its Gaussian approximation",
    label="fig:approximation",
    quick=Cost(cpu=5, gpu=5),
    full=Cost(cpu=10, gpu=5),
    measure=measure_a3b,
    draw=draw_tradeoffs,
)


# A4: is C/2 the best threshold at T = 2? The paper's search, beside the exact answer.


BATCH, REPEATS = 4, 5


def measure_a4(setting: Setting) -> Table:
    """For every sigma: A_S at C/2 and the search's best, audited and exact."""
    runs = setting.choose(quick=20_000, full=200_000)
    searched_places = setting.choose(quick=5, full=15)
    setting.ledger.note(f"{runs:,} simulated runs for each audit, mean of {REPEATS} audits")
    rows: list[Row] = []
    for sigma in NOISE_MULTIPLIERS:
        process = threshold_process(sigma, BATCH, steps=2)
        searched = [
            max(_audit_at(process, place, runs, seed) for place in _places(sigma, searched_places))
            for seed in range(setting.seed, setting.seed + REPEATS)
        ]
        middle = [
            _audit_at(process, 0.5, runs, seed)
            for seed in range(setting.seed, setting.seed + REPEATS)
        ]
        exact = exact_privacy(process, delta=DELTA)
        places = _everywhere(sigma)
        everywhere = threshold_search(process, places, delta=DELTA)
        rows.append(
            {
                "sigma": sigma,
                "batch_size": BATCH,
                "runs": runs,
                "accountant": exact.accountant,
                "middle_paper_rule": float(np.mean(middle)),
                "search_paper_rule": float(np.mean(searched)),
                "middle_gdp_rule": float(exact.gdp_rule[-1]),
                "search_gdp_rule": float(everywhere.gdp_rule.max()),
                "middle_exact": float(exact.epsilon[-1]),
                "search_exact": float(everywhere.exact.max()),
                "best_place_gdp_rule": places[int(np.argmax(everywhere.gdp_rule))],
                "best_place_exact": places[int(np.argmax(everywhere.exact))],
            }
        )
    return Table.of(rows)


def _places(sigma: float, count: int) -> list[float]:
    """The paper's thresholds: quantiles of the distribution without the canary."""
    # Up to the rate at C/2: larger rates are the mirror image.
    rates = np.linspace(0, float(ndtr(-0.5 / sigma)), count + 1)[1:]
    return [float(-sigma * ndtri(rate)) for rate in rates]


def _everywhere(sigma: float) -> list[float]:
    """Thresholds with the paper's rates and much smaller ones, their mirror images, and C/2."""
    rates = np.concatenate([np.logspace(-9, -2, 36)[:-1], np.linspace(0.01, 0.3, 30)])
    above = -sigma * ndtri(rates)
    above = above[above > 0.5]
    return sorted([*(1 - above), 0.5, *above])


def _audit_at(process: LandscapeProcess, place: float, runs: int, seed: int) -> float:
    scores = simulate(process.with_landscape(Threshold(at=place)), runs=runs, seed=seed)
    return estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best").epsilon


def draw_a4(table: Table) -> Drawing:
    """Share of the accountant's epsilon over sigma: audits and GDP rule, then exact."""
    figure, axes = style.new_figure(columns=2, width=style.PAGE, height=2.9)
    sigma, upper = table.numbers("sigma"), np.array(table.numbers("accountant"))
    looks = {
        "middle_paper_rule": (style.BLUE, "o", "C/2, audited"),
        "search_paper_rule": (style.ORANGE, "s", "search, audited"),
        "middle_gdp_rule": (style.BLUE, "", "C/2, GDP rule without error"),
        "middle_exact": (style.BLUE, "o", "C/2, exact"),
        "search_exact": (style.ORANGE, "s", "search, exact"),
    }
    for axis, columns, title in (
        (axes[0], list(looks)[:3], "as the paper audits"),
        (axes[1], list(looks)[3:], "exact"),
    ):
        for column in columns:
            colour, marker, label = looks[column]
            share = np.array(table.numbers(column)) / upper
            line = "-" if marker else "--"
            axis.plot(sigma, share, color=colour, marker=marker, linestyle=line, label=label)
        axis.axhline(1, color=style.GREY, linestyle="-.", lw=1.0, label="accountant")
        axis.set(title=title, xlabel="noise multiplier sigma", ylim=(0.7, 1.05))
        axis.legend(loc="lower right")
    axes[0].set_ylabel("epsilon(T = 2) / accountant")
    return figure


A4 = Figure(
    id="A4",
    title="threshold search at T = 2",
    label="fig:threshold_search",
    quick=Cost(cpu=20, gpu=20),
    full=Cost(cpu=115, gpu=115),
    measure=measure_a4,
    draw=draw_a4,
)


# A7: the loss landscape of A_S: as printed, with its sign corrected, and one that keeps more.


SHAPES = {
    "threshold": "away from C/2 (A_S, meant)",
    "literal": "towards C/2 (as printed)",
    "wells": "wells (not in the paper)",
}


def measure_a7(setting: Setting) -> Table:
    """The loss over positions, and the exact epsilon after 25 steps."""
    rows: list[Row] = []
    sigma, batch = 1, 8
    for shape in SHAPES:
        process = threshold_process(sigma, batch)
        process = process.with_landscape(named_landscape(shape, process, delta=DELTA))
        epsilon = float(exact_privacy(process, delta=DELTA).epsilon[-1])
        position = np.linspace(-4.0, 5.0, 361)
        drift = process.drift(position)
        # The drift is minus the gradient over B; the loss is its integral, in units of B C^2.
        steps = (drift[1:] + drift[:-1]) / 2 * np.diff(position)
        loss = -np.concatenate([[0.0], np.cumsum(steps)])
        rows += [
            {
                "shape": shape,
                "sigma": sigma,
                "batch_size": batch,
                "epsilon_25": epsilon,
                "position": x,
                "loss": value,
            }
            for x, value in zip(position, loss - loss.max(), strict=True)
        ]
    return Table.of(rows)


def draw_a7(table: Table) -> Drawing:
    """Three landscapes."""
    figure, axes = style.new_figure(columns=len(SHAPES), width=style.PAGE, height=2.3)
    for axis, (shape, title) in zip(axes, SHAPES.items(), strict=True):
        rows = table.where(shape=shape)
        axis.plot(rows.numbers("position"), rows.numbers("loss"), color=style.BLUE)
        axis.axvline(0.5, color=style.GREY, linestyle=":", lw=0.8)
        axis.set(title=f"{title}\nepsilon(25) = {rows.numbers('epsilon_25')[0]:.2f}")
        axis.set(xlabel="position / C")
    axes[0].set_ylabel("loss / (B C²)")
    return figure


A7 = Figure(
    id="A7",
    title="the loss landscape of A_S",
    label="fig:adg_syntethic_example",
    quick=Cost(cpu=2, gpu=2),
    full=Cost(cpu=2, gpu=2),
    alike=True,
    measure=measure_a7,
    draw=draw_a7,
)
