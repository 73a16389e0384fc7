"""A3a: the trade-off curve of A_GC-R on the ConvNet at k = 5, beside its Gaussian approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit.lower_bounds import estimate
from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.networks import one_training
from dpaudit.reproduce.readings import DELTA, mu_by_moments
from dpaudit.reproduce.table import Row, Table, Value
from dpaudit.reproduce.tradeoff_drawing import draw_tradeoffs, thinned_errors
from dpaudit.tradeoff import gaussian_tradeoff

if TYPE_CHECKING:
    from dpaudit.reproduce.setting import Setting

PERIOD = 5


def measure(setting: Setting) -> Table:
    """Observed error rates, and the Gaussian curve through the scores' means and variance."""
    trainings = one_training(setting, "convnet", period=PERIOD)
    scores = trainings.play(setting).scores
    rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
    fit = estimate(scores, delta=DELTA, method="gaussian-fit")
    mu = mu_by_moments(scores) or 0.0
    facts: dict[str, Value] = {
        "panel": f"ConvNet, k = {PERIOD}, T = {trainings.steps:,}",
        "scores": len(scores),
        "mu": mu,
        "epsilon_rule": rule.epsilon,
        "epsilon_fit": fit.epsilon,
        "normality_p_value": fit.details.get("normality_p_value"),
    }
    alpha, beta = thinned_errors(scores)
    rows: list[Row] = [
        {**facts, "curve": "observed", "alpha": a, "beta": b}
        for a, b in zip(alpha, beta, strict=True)
    ]
    grid = np.concatenate([np.geomspace(1e-7, 0.02, 60), np.linspace(0.03, 0.99, 60)])
    rows += [
        {**facts, "curve": "Gaussian", "alpha": a, "beta": float(b)}
        for a, b in zip(grid, gaussian_tradeoff(grid, mu), strict=True)
    ]
    return Table.of(rows)


def findings(table: Table) -> str:
    """How far the observed curve is from the Gaussian one."""
    seen = table.where(curve="observed")
    mu = seen.numbers("mu")[0]
    alpha, beta = np.array(seen.numbers("alpha")), np.array(seen.numbers("beta"))
    inside = (alpha > 0) & (alpha < 1)
    gap = float(np.max(np.abs(beta[inside] - gaussian_tradeoff(alpha[inside], mu))))
    count = int(seen.numbers("scores")[0])
    return (
        f"{seen.words('panel')[0]}: {count:,} scores lie at most {gap:.3f} from the curve of "
        f"mu = {mu:.3f}; a sample of this size alone strays by about {1.36 * 2 / count**0.5:.3f}. "
        f"The paper's rule reads {seen.numbers('epsilon_rule')[0]:.2f}, a fit of the means "
        f"{seen.numbers('epsilon_fit')[0]:.2f}. For crafted gradients the score is a sum of "
        "hundreds of Gaussian noises, so the approximation holds here; for crafted landscapes "
        "(A3b) it does not."
    )


FIGURE = Figure(
    id="A3a",
    title="trade-off curve of A_GC-R on the ConvNet at k = 5",
    label="fig:ourapproximationsection5",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=20, gpu=5),
    full=Cost(cpu=152, gpu=20),
    measure=measure,
    draw=draw_tradeoffs,
    findings=findings,
)
