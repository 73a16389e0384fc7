r"""Lower bound on mu from one run, if its canaries are independent of each other.

Every canary is guessed, at a threshold that pilot canaries chose. If a canary's output is
:math:`\mu`-GDP, a guess of its fair coin is correct with probability at most :math:`\Phi(\mu/2)`.
If the guesses are also independent, the number of correct ones is stochastically at most binomial
with that probability. Its exact lower confidence limit gives the bound on mu, which converges to
the true mu. Canaries need not be alike.

Without independence the bound is false. Example: a common coin, thrown with probability 0.8 of
"heads", switches *all* canaries to randomised response with accuracy 0.73; otherwise nothing
depends on the canaries. Each canary is 1-GDP, but given "heads" the accuracy exceeds
:math:`\Phi(1/2) = 0.69`. The coverage page shows how often each method is wrong there.

References:
    Xiang, Wang, Xiao, Tian, Wang: *Tight Privacy Audit in One Run* (arXiv 2509.08704), for audits
    of f-DP in one run that are tight. The bound here is derived as above; it uses no abstentions.
"""

from __future__ import annotations

from typing import final

import numpy as np
from scipy.special import betaincinv, ndtri

from dpaudit._arrays import Array, Integers
from dpaudit.lower_bounds.counts import midpoints
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan
from dpaudit.lower_bounds.one_run_method import FAIR_COINS, OneRunMethod
from dpaudit.lower_bounds.questions import Answer
from dpaudit.lower_bounds.task import Task


@final
class OneRunIndependent(OneRunMethod):
    """The exact bound on mu from the guesses of one run with independent canaries."""

    name = "one-run-independent"
    paper = "Xiang et al. 2025"
    assumptions = (FAIR_COINS, INDEPENDENT_CANARIES, GAUSSIAN_TRADE_OFF)
    needs_positive_delta = True

    def plan(self, scores: Array, coins: Integers, remaining: int, task: Task) -> GuessPlan:
        return GuessPlan(top=0, bottom=remaining, cut=_cut(scores, coins))

    def answer(self, seen: Guesses, task: Task) -> Answer:
        mu = independent_mu(seen.correct, seen.guesses, task.significance)
        return Answer.of_mu(mu, task.question)


def independent_mu(correct: int, guesses: int, significance: float) -> float:
    """Largest mu at which so many correct guesses have a probability below ``significance``.

    Example:
        >>> round(independent_mu(692, 1000, 0.05), 3)
        0.864
    """
    if correct == 0:
        return 0.0
    accuracy = float(betaincinv(correct, guesses - correct + 1, significance))
    return max(0.0, 2 * float(ndtri(accuracy)))


def _cut(scores: Array, coins: Integers) -> float:
    """The threshold with few errors in the pilot that is nearest to the middle of its ranking."""
    order = np.argsort(scores, kind="stable")
    ascending, inserted = scores[order], coins[order]
    ends = 1 + np.flatnonzero(ascending[1:] != ascending[:-1])
    if len(ends) == 0:
        return float(ascending[0])
    missed = np.cumsum(inserted)[ends - 1]
    errors = missed + (len(scores) - inserted.sum()) - (ends - missed)
    # All thresholds within one standard deviation of the fewest errors are as good.
    good = np.flatnonzero(errors <= errors.min() + np.sqrt(errors.min()))
    middle = good[np.abs(ends[good] - len(scores) / 2).argmin()]
    return float(midpoints(ascending[ends[middle] - 1 : ends[middle] + 1])[0])
