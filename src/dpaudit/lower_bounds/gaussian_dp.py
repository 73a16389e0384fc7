r"""The paper's rule: mu from both error rates, then epsilon at delta.

:math:`\mu = \Phi^{-1}(1-\bar\alpha) - \Phi^{-1}(\bar\beta)` with upper confidence bounds on both
rates is a true lower bound on the mu of any mechanism that *is* Gaussian-DP. So is, and it is
larger, the largest mu that a joint test of both rates refutes (`joint_test`); it serves where the
threshold was fixed without the scores it is read on. Reading an epsilon at
:math:`\delta = 10^{-5}` off it extrapolates the trade-off curve far beyond what was seen, along
a Gaussian: that is the assumption, and where the curve is not Gaussian the number is not a bound.

References:
    Nasr et al.: *Tight auditing of differentially private machine learning* (USENIX Security 2023).
    Dong, Roth, Su: *Gaussian differential privacy* (2022), Theorem 2.7 and Corollary 2.13.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.lower_bounds.contract import (
    Answer,
    AtDelta,
    CountEstimator,
    Levels,
    OneThreshold,
    Question,
)
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import refuted_mu
from dpaudit.tradeoff import gaussian_delta, gaussian_epsilon, mu_of_errors

Array = NDArray[np.float64]

GAUSSIAN_TRADE_OFF = "the mechanism's trade-off curve is Gaussian (mu-GDP)"


@final
class GaussianDP(CountEstimator):
    """Gaussian DP from the two error rates (the estimator of the paper)."""

    name = "gaussian-dp"
    paper = "Nasr et al. 2023"
    assumptions = (GAUSSIAN_TRADE_OFF,)
    pilot_caution = 100.0

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        if isinstance(levels, OneThreshold):
            return np.array(
                [refuted_mu(counts[i], levels.significance) for i in range(len(counts))]
            )
        # A rate of 1 says nothing: mu is minus infinity there, which never wins.
        return mu_of_errors(
            levels.upper_false_positive_rate(counts), levels.upper_false_negative_rate(counts)
        )

    def answer(self, merit: float, question: Question) -> Answer:
        mu = max(merit, 0.0)
        if isinstance(question, AtDelta):
            return Answer(value=gaussian_epsilon(question.delta, mu), mu=mu)
        return Answer(value=float(gaussian_delta(question.epsilon, mu)), mu=mu)
