r"""Gaussian DP: mu from both error rates, then epsilon at delta (the paper's rule).

:math:`\mu = \Phi^{-1}(1-\bar\alpha) - \Phi^{-1}(\bar\beta)` with upper confidence limits on both
rates is a lower bound on the mu of any mechanism that *is* Gaussian-DP. Where the threshold was
fixed without these scores, the largest mu that a joint test of both rates refutes (`joint_test`) is
larger and also valid. Converting mu to an epsilon at :math:`\delta = 10^{-5}` extrapolates the
trade-off function along a Gaussian, far beyond the observed rates. If the trade-off function is not
Gaussian, the result is not a lower bound.

References:
    Nasr et al.: *Tight auditing of differentially private machine learning* (USENIX Security 2023).
    Dong, Roth, Su: *Gaussian differential privacy* (2022), Theorem 2.7 and Corollary 2.13.
"""

from __future__ import annotations

from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import GaussianCurves
from dpaudit.lower_bounds.base import CountMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import at_one_threshold
from dpaudit.lower_bounds.levels import Levels, Pointwise
from dpaudit.lower_bounds.questions import Answer, Question

GAUSSIAN_TRADE_OFF = "the mechanism's trade-off curve is Gaussian (mu-GDP)"


@final
class GaussianDP(CountMethod):
    """Gaussian DP from the two error rates (the estimator of the paper)."""

    name = "gaussian-dp"
    paper = "Nasr et al. 2023"
    assumptions = (GAUSSIAN_TRADE_OFF,)
    needs_positive_delta = True
    pilot_caution = 100.0
    foresees = True

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        if isinstance(levels, Pointwise) and levels.joint:
            return np.array(
                [at_one_threshold(one, GaussianCurves(), levels.significance) for one in counts]
            )
        return GaussianCurves().through(*levels.upper_rates(counts))

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer.of_mu(merit, question)
