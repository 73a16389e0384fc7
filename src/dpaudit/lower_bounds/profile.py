r"""The whole privacy profile and trade-off function at one confidence.

Simultaneous bands of both distribution functions give a proven pair of error rates at *every*
threshold, so epsilon or delta may be chosen after seeing the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.curves import epsilon_of_errors
from dpaudit.lower_bounds.base import ScoreMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.evidence import dependence_of, wrong_way
from dpaudit.lower_bounds.levels import Everywhere
from dpaudit.lower_bounds.questions import Answer, AtDelta
from dpaudit.lower_bounds.task import Task
from dpaudit.privacy import Bound
from dpaudit.scores import Scores


@final
@dataclass(frozen=True, kw_only=True)
class ProvenCurve:
    """Points that lie above the mechanism's trade-off function, at one confidence.

    With probability ``confidence`` the true trade-off function passes below every point
    ``(false_positive_upper[i], false_negative_upper[i])``. The observed rates are
    ``false_positive_rate`` and ``false_negative_rate``.
    """

    thresholds: Array
    false_positive_rate: Array
    false_negative_rate: Array
    false_positive_upper: Array
    false_negative_upper: Array
    confidence: float
    sample_size: int

    def delta_at(self, epsilon: ArrayLike) -> Array:
        """Lower bound on delta at each epsilon; they hold together."""
        growth = np.exp(np.minimum(np.asarray(epsilon, dtype=float), 700.0))[..., None]
        alpha, beta = self.false_positive_upper, self.false_negative_upper
        if len(alpha) == 0:
            return np.zeros(growth.shape[:-1])
        best = np.maximum(1 - beta - growth * alpha, 1 - alpha - growth * beta).max(axis=-1)
        return np.asarray(np.maximum(best, 0.0))

    def epsilon_at(self, delta: float) -> float:
        """Lower bound on epsilon at one delta; all of them hold together."""
        delta = _validate.delta(delta)
        alpha, beta = self.false_positive_upper, self.false_negative_upper
        return float(epsilon_of_errors(alpha, beta, delta).max(initial=0.0))

    def to_dict(self, *, points: int = 101) -> dict[str, Any]:
        """Curve and trade-off points as plain lists, thinned to about ``points``."""
        top = max(self.epsilon_at(0.0), 1e-3)
        epsilons = np.linspace(0.0, top, points)
        size = len(self.thresholds)
        keep = np.unique(np.linspace(0, max(size - 1, 0), min(points, size)).astype(int))
        return {
            "profile": {"epsilon": epsilons.tolist(), "delta": self.delta_at(epsilons).tolist()},
            "trade_off": {
                "false_positive_rate": self.false_positive_rate[keep].tolist(),
                "false_negative_rate": self.false_negative_rate[keep].tolist(),
                "false_positive_upper": self.false_positive_upper[keep].tolist(),
                "false_negative_upper": self.false_negative_upper[keep].tolist(),
            },
        }


def proven_curve(scores: Scores, *, confidence: float = 0.95) -> ProvenCurve:
    """The proven trade-off points of ``scores``, at one simultaneous confidence.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 500), random.normal(0, 1, 500))
        >>> curve = proven_curve(scores)
        >>> bool((np.diff(curve.delta_at([0, 0.5, 1, 2])) <= 0).all())
        True
    """
    significance = 1 - _validate.confidence(confidence)
    counts = ErrorCounts.sweep(scores.inserted_scores, scores.other_scores)
    alpha, beta = Everywhere(significance).upper_rates(counts)
    return ProvenCurve(
        thresholds=counts.thresholds,
        false_positive_rate=counts.false_positives / counts.negatives,
        false_negative_rate=counts.false_negatives / counts.positives,
        false_positive_upper=alpha,
        false_negative_upper=beta,
        confidence=confidence,
        sample_size=counts.sample_size,
    )


@final
class Profile(ScoreMethod):
    """The bound that the proven trade-off points give; no assumption on the scores."""

    name = "profile"
    paper = ""

    def from_scores(self, scores: Scores, task: Task) -> Bound:
        dependence, notes = dependence_of(scores)
        curve = proven_curve(scores, confidence=task.confidence)
        if isinstance(task.question, AtDelta):
            value = curve.epsilon_at(task.question.delta)
        else:
            value = float(curve.delta_at(task.question.epsilon))
        if value == 0:
            notes = ("nothing can be claimed: the band contains the line of no leak", *notes)
        return task.bound(
            self.name,
            Answer(value=value),
            sample_size=curve.sample_size,
            assumptions=dependence,
            notes=(*notes, *wrong_way(scores)),
            **curve.to_dict(),
        )
