"""A3b: the trade-off curve of A_S at T = 25, sigma = 4, beside its Gaussian approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit.curves import gaussian_tradeoff
from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.landscapes import exact_privacy, simulate
from dpaudit_paper.readings import DELTA
from dpaudit_paper.table import Row, Table, Value
from dpaudit_paper.threshold_grid import threshold_process
from dpaudit_paper.tradeoff_drawing import draw_tradeoffs, thinned_errors

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

SIGMA, BATCHES = 4, (1, 16)


def measure(setting: Setting) -> Table:
    """Observed error rates, the exact curve, and the Gaussian curve of the paper's rule."""
    runs = setting.choose(quick=20_000, full=1_000_000)
    rows: list[Row] = []
    for batch in BATCHES:
        process = threshold_process(SIGMA, batch)
        exact = exact_privacy(process, delta=DELTA)
        found = simulate(process, runs=runs, seed=setting.seed)
        scores = Scores.from_samples(found.inserted, found.not_inserted)
        rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
        panel = f"sigma = {SIGMA}, B = {batch}, T = {process.steps}"
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


def findings(table: Table) -> str:
    """The distance of the two curves, in the middle and at small rates."""
    parts = []
    for panel in table.words("panel"):
        rows = table.where(panel=panel)
        gaussian = np.array(rows.where(curve="Gaussian").numbers("beta"))
        exact = np.array(rows.where(curve="exact").numbers("beta"))
        gap = float(np.max(np.abs(gaussian - exact)))
        parts.append(
            f"{panel}: the largest distance is {gap:.3f}, the rule claims epsilon "
            f"{rows.numbers('epsilon_rule')[0]:.3f} and the exact one is "
            f"{rows.numbers('epsilon_exact')[0]:.3f}"
        )
    return (
        "On linear axes the Gaussian curve and the exact one are close, as the paper shows ("
        + "; ".join(parts)
        + "). At delta = 1e-5, epsilon depends on error rates of 1e-5 and below, which the right "
        "half shows: there the exact curve differs from the Gaussian one. The approximation error "
        "is negligible for the curve, but not for epsilon."
    )


FIGURE = Figure(
    id="A3b",
    title="trade-off curve of A_S against its Gaussian approximation",
    label="fig:approximation",
    quick=Cost(cpu=5, gpu=5),
    full=Cost(cpu=10, gpu=5),
    measure=measure,
    draw=draw_tradeoffs,
    findings=findings,
)
