"""Correlation between the canaries of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.lower_bounds.normality import unit_of
from dpaudit.scores import Scores

INDEPENDENT_CANARIES = "canaries of the same run are independent"


@final
@dataclass(frozen=True, kw_only=True)
class WithinRunDependence:
    """Intraclass correlation of scores within a run, after subtracting the effect of insertion.

    Arguments:
        correlation: 0 if canaries of one run are no more alike than canaries of different runs;
            `None` if there is only one run.
        design_effect: Factor by which dependence inflates the variance of a mean; the effective
            number of scores is the number of scores divided by this.
    """

    correlation: float | None
    design_effect: float | None

    @property
    def sentence(self) -> str:
        """The diagnostic as a sentence."""
        if self.correlation is None or self.design_effect is None:
            return "one run only: dependence between its canaries cannot be measured"
        return (
            f"within-run correlation of scores {self.correlation:.4f} "
            f"(design effect {self.design_effect:.2f})"
        )


def within_run_dependence(scores: Scores) -> WithinRunDependence:
    """One-way analysis of variance of the residual scores by run.

    Example:
        >>> scores = Scores(score=[0, 1, 5, 6], inserted=[0, 1, 0, 1], run=[0, 0, 1, 1])
        >>> within_run_dependence(scores).correlation
        1.0
    """
    finite = np.isfinite(scores.score)
    runs, run = np.unique(scores.run[finite], return_inverse=True)
    if len(runs) < 2 or len(run) <= len(runs):
        return WithinRunDependence(correlation=None, design_effect=None)
    residual = scores.score[finite] / unit_of(scores.score)
    for kind in (True, False):
        rows = scores.inserted[finite] == kind
        if rows.any():
            residual[rows] -= residual[rows].mean()
    size = np.bincount(run)
    mean = np.bincount(run, residual) / size
    between = float(size @ (mean - residual.mean()) ** 2) / (len(runs) - 1)
    within = float(((residual - mean[run]) ** 2).sum()) / (len(run) - len(runs))
    typical = (len(run) - float(size @ size) / len(run)) / (len(runs) - 1)
    total = between + (typical - 1) * within
    correlation = (between - within) / total if total > 0 else 0.0
    effect = 1 + (float(size.mean()) - 1) * correlation
    return WithinRunDependence(correlation=correlation, design_effect=max(effect, 0.0))
