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
from dpaudit.curves import pairs_family
from dpaudit.lower_bounds.base import CountMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import at_one_threshold
from dpaudit.lower_bounds.levels import Levels, Pointwise
from dpaudit.lower_bounds.questions import Answer, Question


@final
class ClopperPearson(CountMethod):
    """Exact bounds on both error rates, then the definition of (epsilon, delta)-DP."""

    name = "clopper-pearson"
    paper = "Jagielski et al. 2020"
    foresees = True

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        if isinstance(levels, Pointwise) and levels.joint:
            family = pairs_family(question)
            return np.array([at_one_threshold(one, family, levels.significance) for one in counts])
        return pairs_family(question).through(*levels.upper_rates(counts))

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=merit)
