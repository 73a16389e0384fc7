r"""Lower bound on mu from one run, for mechanisms whose trade-off curve is Gaussian.

The (epsilon, delta) theorem of :mod:`dpaudit.lower_bounds.one_run` uses one point of the trade-off
curve. Here the whole curve :math:`f = G_\mu` is put to the test, which is stronger where epsilon
at a small delta is asked for.

Let :math:`W` be the number of right guesses out of :math:`r`, for :math:`m` canaries. Look at one
canary: flipping its coin turns "guessed right, and at least :math:`c` right in all" into "guessed
wrong, and at least :math:`c-1` right in all". The mechanism being f-DP bounds the probability of
the first by :math:`\bar f = 1 - f` of the second. Averaged over canaries (:math:`\bar f` is
concave), with

.. math:: R_c = E[\tfrac{W}{m} 1_{W \ge c}], \qquad H_c = E[\tfrac{r-W}{m} 1_{W \ge c}],

this says :math:`R_c \le \bar f(H_{c-1})` for every :math:`c`. If :math:`P(W \ge c)` were
``significance`` or more, these inequalities, followed down from :math:`c` to 0, would force
more probability than there is; when they do, mu is refuted.

What is assumed: fair independent coins, guesses blind to them (as for every one-run bound), a
*number of guesses fixed beforehand*, and, for epsilon at another delta, that the trade-off curve
really is Gaussian: a lower bound on mu says nothing of epsilon at small delta otherwise.

The bound does not reach the true mu with many canaries: its first step compares probabilities of
the size of ``significance``, where a Gaussian curve is steep. It is a price of assuming nothing
about how canaries interact.

References:
    Mahloujifar, Melis, Chaudhuri: *Auditing f-Differential Privacy in One Run* (ICML 2025,
    arXiv 2410.22235): the recursion of its numerical algorithm, with two guessed values per coin.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpaudit import _validate
from dpaudit._roots import sign_change
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF
from dpaudit.lower_bounds.guesses import Array, GuessPlan, Ints, best_plan, candidate_plans
from dpaudit.lower_bounds.one_run import check_counts
from dpaudit.lower_bounds.one_run_method import FAIR_COINS, OneRunMethod
from dpaudit.lower_bounds.questions import Answer
from dpaudit.lower_bounds.task import Task


def one_run_gaussian_mu(correct: int, guesses: int, canaries: int, *, significance: float) -> float:
    r"""Lower bound on the mu of a Gaussian trade-off curve from the guesses of one run.

    The largest mu that the number of right guesses refutes; 0 where none is. If the mechanism is
    :math:`\mu`-GDP, the result exceeds :math:`\mu` with probability at most ``significance``.
    For epsilon, hand the result to :func:`dpaudit.tradeoff.gaussian_epsilon`.

    See also: :func:`dpaudit.lower_bounds.one_run.one_run_epsilon`, which assumes no curve.

    Mahloujifar et al. 2024. Assumptions: see the module.

    Arguments:
        correct: Number of right guesses.
        guesses: Number of guesses, fixed before the scores were seen.
        canaries: Number of canaries, abstentions included.
        significance: Accepted probability of a false claim, in (0, 1).

    Example:
        >>> from dpaudit.tradeoff import gaussian_epsilon
        >>> mu = one_run_gaussian_mu(379, 406, 20_000, significance=0.05 / 386)
        >>> round(gaussian_epsilon(1e-6, mu), 5)
        2.16475
    """
    correct, guesses, canaries = check_counts(correct, guesses, canaries)
    significance = _validate.between("significance", significance, 0, 1)
    if correct == 0 or not _refutes(0.0, correct, guesses, canaries, significance):
        return 0.0

    def excess(mu: float) -> float:
        return -1.0 if _refutes(mu, correct, guesses, canaries, significance) else 1.0

    return sign_change(excess, 0.0, 1.0, tolerance=1e-12)[0]


def choose_gaussian_guesses(
    pilot_scores: ArrayLike, pilot_inserted: ArrayLike, remaining: int, *, significance: float
) -> GuessPlan:
    """How many of the ``remaining`` canaries to guess, learnt from pilot canaries of the same run.

    As :func:`dpaudit.lower_bounds.one_run.choose_guesses`, for the bound on mu: it wants few and
    nearly certain guesses. Valid for the same reason: revealed coins are part of the fixed data.

    Example:
        >>> import numpy as np
        >>> coins = np.arange(200) % 2
        >>> choose_gaussian_guesses(coins + 0.001 * np.arange(200), coins, 1800, significance=0.05)
        GuessPlan(top=900, bottom=900)
    """
    significance = _validate.between("significance", significance, 0, 1)
    plans = candidate_plans(pilot_scores, pilot_inserted, remaining)
    share = significance / max(remaining, 1)
    wrong = plans.guesses - plans.correct
    # The recursion stops at once unless mu is below this.
    with np.errstate(invalid="ignore"):  # no guess at all: minus infinity on both sides
        ceilings = ndtri(share * plans.correct) - ndtri(share * wrong)
    ceilings = np.where(plans.correct == 0, 0.0, np.where(wrong == 0, np.inf, ceilings))

    def refutes(correct: int, guesses: int, mu: float) -> bool:
        return _refutes(mu, correct, guesses, remaining, significance)

    def bound(correct: int, guesses: int) -> float:
        return one_run_gaussian_mu(correct, guesses, remaining, significance=significance)

    return best_plan(plans, ceilings, refutes, bound)


def _refutes(mu: float, correct: int, guesses: int, canaries: int, significance: float) -> bool:
    r"""Whether ``correct`` right guesses have probability below ``significance`` under mu-GDP.

    Lower bounds ``right`` and ``wrong`` on :math:`R_i` and :math:`H_i`, for i from ``correct``
    down. The mass at exactly i right guesses adds to them in the proportion i to guesses - i.
    """
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    everything = guesses / canaries
    for i in range(correct - 1, -1, -1):
        needed = float(ndtr(ndtri(right) - mu))
        if needed <= wrong:
            return False  # the inequality holds without more mass, here and at every smaller i
        right += i / (guesses - i) * (needed - wrong)
        wrong = needed
        if right + wrong >= everything:
            return True
    return False


@final
class OneRunFDP(OneRunMethod):
    """The bound of Mahloujifar et al. for Gaussian trade-off functions from one training run."""

    name = "one-run-fdp"
    paper = "Mahloujifar et al. 2025"
    assumptions = (FAIR_COINS, GAUSSIAN_TRADE_OFF)
    needs_positive_delta = True

    def plan(self, scores: Array, coins: Ints, remaining: int, task: Task) -> GuessPlan:
        return choose_gaussian_guesses(scores, coins, remaining, significance=task.significance)

    def answer(self, correct: int, guesses: int, canaries: int, task: Task) -> Answer:
        mu = one_run_gaussian_mu(correct, guesses, canaries, significance=task.significance)
        return Answer.of_mu(mu, task.question)
