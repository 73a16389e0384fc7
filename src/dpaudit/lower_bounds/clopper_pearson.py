r"""Clopper-Pearson limits on both error rates; no assumption on the scores.

A mechanism that is :math:`(\epsilon, \delta)`-DP satisfies, for the error rates :math:`\alpha`
(false positives) and :math:`\beta` (false negatives) of *any* test,
:math:`1 - \beta \le e^\epsilon \alpha + \delta` and the same with both exchanged.
Upper confidence bounds on both rates turn each into a lower bound on epsilon, or on delta.

References:
    Kairouz, Oh, Viswanath: *The composition theorem for differential privacy* (2015), Theorem 2.1.
    Jagielski, Ullman, Oprea: *Auditing differentially private machine learning* (2020).
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.lower_bounds.base import CountMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.levels import Levels
from dpaudit.lower_bounds.questions import Answer, AtDelta, Question

Array = NDArray[np.float64]


def epsilon_of_errors(alpha: Array, beta: Array, delta: float) -> Array:
    """Smallest epsilon at ``delta`` that allows both error rates, both directions; at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(1 - delta - beta, 0)) - np.log(alpha)
        back = np.log(np.maximum(1 - delta - alpha, 0)) - np.log(beta)
    return np.asarray(np.maximum(np.nan_to_num(np.maximum(forth, back), nan=0.0), 0.0))


def delta_of_errors(alpha: Array, beta: Array, epsilon: float) -> Array:
    """Smallest delta at ``epsilon`` that allows both error rates, both directions; at least 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(min(epsilon, 700.0))
        forth, back = 1 - beta - growth * alpha, 1 - alpha - growth * beta
    return np.asarray(np.maximum(np.maximum(forth, back), 0.0))


@final
class ClopperPearson(CountMethod):
    """Clopper-Pearson bounds on both error rates, then the definition of (epsilon, delta)-DP."""

    name = "clopper-pearson"
    paper = "Jagielski et al. 2020"

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        alpha = levels.upper_false_positive_rate(counts)
        beta = levels.upper_false_negative_rate(counts)
        if isinstance(question, AtDelta):
            return epsilon_of_errors(alpha, beta, question.delta)
        return delta_of_errors(alpha, beta, question.epsilon)

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=merit)
