r"""Lower bound on mu from one run, for mechanisms whose trade-off function is Gaussian.

The theorem of :mod:`dpaudit.lower_bounds.one_run` uses one point of the trade-off function. Here
the whole function :math:`f = G_\mu` is tested by `one_run_recursion`, which is stronger at a small
delta.

Assumptions: fair independent coins, guesses that depend on the coins only through the output, a
*number of guesses fixed beforehand*, and, for epsilon at another delta, that the trade-off function
is Gaussian.

The bound does not reach the true mu even with many canaries: its first step compares probabilities
of the size of ``significance``, where a Gaussian trade-off function is steep. In return nothing is
assumed about how canaries interact.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit.curves import GaussianCurves, gaussian_curve
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, best_plan, candidate_plans
from dpaudit.lower_bounds.one_run_method import FAIR_COINS, OneRunMethod
from dpaudit.lower_bounds.one_run_recursion import guesses_refute, largest_refuted
from dpaudit.lower_bounds.questions import Answer
from dpaudit.lower_bounds.task import Task


def one_run_gaussian_mu(seen: Guesses, *, significance: float) -> float:
    r"""Lower bound on the mu of a Gaussian trade-off function from the guesses of one run.

    The largest mu that the number of correct guesses refutes, or 0. If the mechanism is
    :math:`\mu`-GDP, the result exceeds :math:`\mu` with probability at most ``significance``.
    :func:`dpaudit.curves.gaussian_epsilon` converts it to epsilon.

    See also: :func:`dpaudit.lower_bounds.one_run.one_run_epsilon`, which assumes no function.

    Mahloujifar et al. 2024. Assumptions: see the module.

    Arguments:
        seen: The guesses of the run; their number was fixed before the scores were seen.
        significance: Accepted probability that the bound is false, in (0, 1).

    Example:
        >>> from dpaudit.curves import gaussian_epsilon
        >>> mu = one_run_gaussian_mu(Guesses(379, 406, 20_000), significance=0.05 / 386)
        >>> round(gaussian_epsilon(1e-6, mu), 5)
        2.16475
    """
    level = _validate.between("significance", significance, 0, 1)
    return largest_refuted(GaussianCurves(), seen, significance=level, tolerance=1e-12)


def choose_gaussian_guesses(
    pilot_scores: ArrayLike, pilot_inserted: ArrayLike, remaining: int, *, significance: float
) -> GuessPlan:
    """How many of the remaining canaries to guess, learned from pilot canaries of the same run.

    As :func:`dpaudit.lower_bounds.one_run.choose_guesses`, and valid for the same reason. The bound
    on mu is largest for few and nearly certain guesses.

    Example:
        >>> import numpy as np
        >>> coins = np.arange(200) % 2
        >>> scores = coins + 0.001 * np.arange(200)
        >>> plan = choose_gaussian_guesses(scores, coins, 1800, significance=0.05)
        >>> plan.top, plan.bottom
        (900, 900)
    """
    significance = _validate.between("significance", significance, 0, 1)
    plans = candidate_plans(pilot_scores, pilot_inserted, remaining)
    share = significance / max(remaining, 1)
    wrong = plans.guesses - plans.correct
    # The recursion stops at once unless mu is below this.
    with np.errstate(invalid="ignore"):  # no guess at all: minus infinity on both sides
        ceilings = ndtri(share * plans.correct) - ndtri(share * wrong)
    return best_plan(
        plans,
        ceilings=np.where(plans.correct == 0, 0.0, np.where(wrong == 0, np.inf, ceilings)),
        refutes=lambda seen, mu: guesses_refute(gaussian_curve(mu), seen, significance),
        bound=lambda seen: one_run_gaussian_mu(seen, significance=significance),
    )


@final
class OneRunFDP(OneRunMethod):
    """The bound of Mahloujifar et al. for Gaussian trade-off functions from one training run."""

    name = "one-run-fdp"
    paper = "Mahloujifar et al. 2025"
    assumptions = (FAIR_COINS, GAUSSIAN_TRADE_OFF)
    needs_positive_delta = True

    def plan(self, scores: Array, coins: Integers, remaining: int, task: Task) -> GuessPlan:
        return choose_gaussian_guesses(scores, coins, remaining, significance=task.significance)

    def answer(self, seen: Guesses, task: Task) -> Answer:
        mu = one_run_gaussian_mu(seen, significance=task.significance)
        return Answer.of_mu(mu, task.question)
