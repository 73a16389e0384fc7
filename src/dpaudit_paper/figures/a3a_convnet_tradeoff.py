"""A3a: the trade-off curve of A_GC-R on the ConvNet at k = 5, beside its Gaussian approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit.curves import gaussian_tradeoff
from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.networks import one_training
from dpaudit_paper.readings import DELTA, mu_by_moments
from dpaudit_paper.table import Row, Table, Value
from dpaudit_paper.tradeoff_drawing import draw_tradeoffs, thinned_errors

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

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
        "gap": _gap(scores, mu),
        "usual_gap": _usual_gap(scores, mu, seed=setting.seed),
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


def _gap(scores: Scores, mu: float) -> float:
    """How far, at most, the observed error rates are from the Gaussian curve."""
    alpha, beta = thinned_errors(scores)
    inside = (alpha > 0) & (alpha < 1)
    return float(np.max(np.abs(beta[inside] - gaussian_tradeoff(alpha[inside], mu))))


def _usual_gap(scores: Scores, mu: float, *, seed: int) -> float:
    """The 95 % quantile of this distance for Gaussian samples of this size."""
    random, inserted = np.random.default_rng(seed), len(scores.inserted_scores)
    gaps = []
    for _ in range(200):
        sample = Scores.from_samples(
            random.normal(mu, 1, inserted), random.normal(0, 1, len(scores) - inserted)
        )
        gaps.append(_gap(sample, mu_by_moments(sample) or 0.0))
    return float(np.quantile(gaps, 0.95))


def findings(table: Table) -> str:
    """How far the observed curve is from the Gaussian one."""
    seen = table.where(curve="observed")
    mu, count = seen.numbers("mu")[0], int(seen.numbers("scores")[0])
    return (
        f"{seen.words('panel')[0]}: {count:,} scores lie at most {seen.numbers('gap')[0]:.3f} from "
        f"the curve of mu = {mu:.3f}; 95 of 100 Gaussian samples of this size stay below "
        f"{seen.numbers('usual_gap')[0]:.3f}. "
        f"The paper's rule gives {seen.numbers('epsilon_rule')[0]:.2f}, a fit of the means "
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
