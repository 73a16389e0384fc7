r"""(epsilon, delta)-DP from both error rates; no assumption on the scores.

A mechanism that is :math:`(\epsilon, \delta)`-DP satisfies, for the error rates :math:`\alpha`
(false positives) and :math:`\beta` (false negatives) of *any* test,
:math:`1 - \beta \le e^\epsilon \alpha + \delta` and the same with both exchanged.
At a threshold that was fixed without these scores, the bound is the largest epsilon that a joint
test of both rates refutes (`joint_test`). Otherwise Clopper-Pearson upper limits on both rates,
which may hold at many thresholds together, turn each inequality into a lower bound on epsilon or
delta.

References:
    Kairouz, Oh, Viswanath: *The composition theorem for differential privacy* (2015), Theorem 2.1.
    Jagielski, Ullman, Oprea: *Auditing differentially private machine learning* (2020).
"""

from __future__ import annotations

from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.lower_bounds.base import CountMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import CurvesAtDelta, CurvesAtEpsilon, refuted
from dpaudit.lower_bounds.levels import Levels, Pointwise
from dpaudit.lower_bounds.questions import Answer, AtDelta, Question


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


def answer_of_errors(alpha: Array, beta: Array, question: Question) -> Array:
    """Smallest epsilon or delta that allows both error rates, both directions; at least 0."""
    if isinstance(question, AtDelta):
        return epsilon_of_errors(alpha, beta, question.delta)
    return delta_of_errors(alpha, beta, question.epsilon)


def _joint(counts: ErrorCounts, question: Question, significance: float) -> float:
    """The largest epsilon, or delta, that a joint test of both rates refutes."""
    if isinstance(question, AtDelta):
        return refuted(counts, CurvesAtDelta(delta=question.delta), significance)
    family = CurvesAtEpsilon(epsilon=question.epsilon)
    return refuted(counts, family, significance, highest=1.0)


@final
class ClopperPearson(CountMethod):
    """Exact bounds on both error rates, then the definition of (epsilon, delta)-DP."""

    name = "clopper-pearson"
    paper = "Jagielski et al. 2020"
    foresees = True

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        if isinstance(levels, Pointwise) and levels.joint:
            return np.array([_joint(one, question, levels.significance) for one in counts])
        return answer_of_errors(*levels.upper_rates(counts), question)

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=merit)
