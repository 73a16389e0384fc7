r"""Lower bounds from one training run with many canaries, each inserted by its own fair coin.

The auditor guesses some of the coins from one output of the mechanism and abstains on the others.
If the mechanism is (epsilon, delta)-DP, each guess is correct with probability at most
:math:`e^\epsilon/(1+e^\epsilon)` given all other guesses. Canaries need not be independent, and too
many correct guesses refute the claim.

Assumptions, here and in :mod:`dpaudit.lower_bounds.one_run_fdp`:

- every canary was inserted by a fair coin, independent of all other coins and of the data.
  Inserting exactly half of the canaries is not allowed: it makes the coins dependent;
- the guesses, and on which canaries to abstain, depend on the coins only through the output.

Nothing is assumed about how the canaries interact inside the run.

References:
    Steinke, Nasr, Jagielski: *Privacy Auditing with One (1) Training Run* (NeurIPS 2023,
    arXiv 2305.08846): the main theorem for approximate DP, and its p-value in the appendix.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, expit, gammaln, logit

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit._roots import sign_change
from dpaudit.curves import PairsAtDelta
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, best_plan, candidate_plans
from dpaudit.lower_bounds.one_run_method import FAIR_COINS, OneRunMethod
from dpaudit.lower_bounds.one_run_recursion import largest_refuted
from dpaudit.lower_bounds.questions import Answer, AtDelta
from dpaudit.lower_bounds.task import Task


def one_run_p_value(seen: Guesses, *, epsilon: float, delta: float) -> float:
    r"""P-value of the claim that the mechanism is (epsilon, delta)-DP, from correct guesses.

    With :math:`v` of :math:`r` guesses correct, :math:`m` canaries, and
    :math:`B \sim \mathrm{Binomial}(r, e^\epsilon/(1+e^\epsilon))` it is

    .. math:: P(B \ge v) + 2 m \delta \max_{1 \le i \le v} \tfrac1i P(v - i \le B < v).

    See also: :func:`one_run_epsilon` and :func:`one_run_delta`, which invert it.

    Steinke et al. 2023, main theorem. Assumes fair independent coins (see the module).

    Arguments:
        seen: The guesses of the run.
        epsilon: Privacy loss of the claim, at least 0.
        delta: Probability of the claim, in [0, 1).

    Example:
        >>> round(one_run_p_value(Guesses(90, 100, 100), epsilon=2.0, delta=1e-5), 6)
        0.342797
    """
    epsilon, delta = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)
    tail, slope = _tail_and_slope(seen, epsilon)
    return min(1.0, tail + 2 * seen.canaries * delta * slope)


def one_run_epsilon(seen: Guesses, *, delta: float, significance: float) -> float:
    r"""Lower bound on epsilon at ``delta`` from the guesses of one run.

    The largest epsilon whose p-value is at most ``significance``, or 0 if there is none. It is
    correct with probability at least 1 - ``significance`` over coins and mechanism.

    See also: :func:`count_guesses` for the counts, :func:`choose_guesses` for the plan.

    Steinke et al. 2023. Assumes fair independent coins (see the module), and that the numbers of
    guesses were not chosen by looking at the coins of these same canaries.

    Arguments:
        seen: The guesses of the run.
        delta: Delta at which epsilon is bounded, in [0, 1).
        significance: Accepted probability that the bound is false, in (0, 1).

    Example:
        >>> seen = Guesses(2807, 3376, 20_000)
        >>> round(one_run_epsilon(seen, delta=1e-6, significance=0.05 / 386), 5)
        1.13346
    """
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    counts = np.asarray(seen.correct), np.asarray(seen.guesses)
    high = float(_pure_epsilon(*counts, significance))
    if delta == 0 or high == 0:
        return high

    def excess(epsilon: float) -> float:
        tail, slope = _tail_and_slope(seen, epsilon)
        return math.log(max(tail + 2 * seen.canaries * delta * slope, 1e-300) / significance)

    # The p-value grows with delta, so the bound at delta 0 is an upper end.
    if excess(0.0) > 0:
        return 0.0
    if excess(high) <= 0:
        return high
    return sign_change(excess, 0.0, high, tolerance=1e-14)[0]


def recursion_epsilon(seen: Guesses, *, delta: float, significance: float) -> float:
    r"""As `one_run_epsilon`, by the recursion of Mahloujifar et al. for the trade-off function.

    Tighter than the theorem of Steinke et al. unless :math:`m\delta` is tiny; there it is looser
    by about 0.01. The number of guesses must be fixed beforehand.

    Example:
        >>> seen, asked = Guesses(990, 1000, 1000), {"significance": 0.05}
        >>> [round(recursion_epsilon(seen, delta=delta, **asked), 3) for delta in (1e-3, 1e-2)]
        [4.043, 3.986]
        >>> [round(one_run_epsilon(seen, delta=delta, **asked), 3) for delta in (1e-3, 1e-2)]
        [3.215, 0.527]
    """
    delta = _validate.delta(delta)
    level = _validate.between("significance", significance, 0, 1)
    return largest_refuted(PairsAtDelta(delta), seen, significance=level, tolerance=1e-10)


def one_run_delta(seen: Guesses, *, epsilon: float, significance: float) -> float:
    r"""Lower bound on delta at ``epsilon`` from the guesses of one run.

    The p-value is linear in delta, so the largest refuted delta has a closed form. Same theorem
    and assumptions as :func:`one_run_epsilon`.

    Example:
        >>> one_run_delta(Guesses(990, 1000, 1000), epsilon=1.0, significance=0.05) > 1e-3
        True
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    significance = _validate.between("significance", significance, 0, 1)
    tail, slope = _tail_and_slope(seen, epsilon)
    if tail >= significance:
        return 0.0
    # slope > 0 here: it vanishes only with no right guess, where the tail is 1.
    return min(1.0, (significance - tail) / (2 * seen.canaries * slope))


def choose_guesses(
    pilot_scores: ArrayLike,
    pilot_inserted: ArrayLike,
    remaining: int,
    *,
    delta: float,
    significance: float,
) -> GuessPlan:
    r"""How many of the remaining canaries to guess, learned from pilot canaries of the same run.

    Many numbers of guesses at both ends of the ranking are tried on the pilot. The plan with the
    largest bound that the pilot predicts for the rest is returned.

    The plan is valid: the pilot's coins are independent of the others, so given them the remaining
    coins are still fair and independent, and the mechanism is still (epsilon, delta)-DP in each.
    The theorem holds with ``remaining`` as the number of canaries. It would not be valid to
    evaluate the plan on the pilot canaries again, or to choose the plan on all canaries.

    See also: :func:`count_guesses`, :func:`one_run_epsilon`.

    Arguments:
        pilot_scores: Scores of the pilot canaries, drawn at random from those of the run.
        pilot_inserted: Their coins, 0 or 1.
        remaining: Number of canaries to guess among.
        delta: Delta at which epsilon will be bounded.
        significance: Error probability of that bound.

    Example:
        >>> import numpy as np
        >>> coins = np.arange(200) % 2
        >>> scores = coins + 0.001 * np.arange(200)
        >>> plan = choose_guesses(scores, coins, 1800, delta=0, significance=0.05)
        >>> plan.top, plan.bottom
        (900, 900)
    """
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    plans = candidate_plans(pilot_scores, pilot_inserted, remaining)
    return best_plan(
        plans,
        ceilings=_pure_epsilon(plans.correct, plans.guesses, significance),
        refutes=lambda seen, epsilon: (
            one_run_p_value(seen, epsilon=epsilon, delta=delta) <= significance
        ),
        bound=lambda seen: one_run_epsilon(seen, delta=delta, significance=significance),
    )


def _pure_epsilon(correct: Integers, guesses: Integers, significance: float) -> Array:
    """The bound at delta 0: the Clopper-Pearson lower limit of a guess's accuracy, as log-odds."""
    accuracy = betaincinv(np.maximum(correct, 1), guesses - correct + 1, significance)
    return np.where(correct == 0, 0.0, np.maximum(logit(accuracy), 0.0))


def _tail_and_slope(seen: Guesses, epsilon: float) -> tuple[float, float]:
    r""":math:`P(B \ge v)` and :math:`\max_i P(v-i \le B < v)/i`, the p-value's slope in 2 m delta.

    The maximum is the largest average of the probabilities of v-1, v-2, ..., v-i. The
    probabilities are unimodal, so the average rises until the next one is below it and falls from
    there: the best i is found by bisection.
    """
    correct, guesses = seen.correct, seen.guesses
    if correct == 0:
        return 1.0, 0.0
    success, failure = float(expit(epsilon)), float(expit(-epsilon))
    mode = math.floor((guesses + 1) * success)
    log_start = gammaln(guesses + 1) + guesses * math.log(failure) if failure > 0 else -math.inf
    tail = float(betainc(correct, guesses - correct + 1, success))

    def average(i: int) -> float:
        at_least = (
            float(betainc(correct - i, guesses - correct + i + 1, success)) if i < correct else 1.0
        )
        return (at_least - tail) / i

    def probability(k: int) -> float:
        if k < 0:
            return 0.0
        log_p = log_start - gammaln(k + 1) - gammaln(guesses - k + 1) + k * epsilon
        return math.exp(min(0.0, log_p))

    def falls(i: int) -> bool:
        following = correct - i - 1
        # Above the mode they rise. This is tested first: far above it all of them underflow.
        return following < mode and probability(following) <= average(i)

    best = 1 + bisect_left(range(1, correct), True, key=falls)
    return tail, max(0.0, average(best))


@final
class OneRun(OneRunMethod):
    """The bound of Steinke et al. for (epsilon, delta)-DP from one training run."""

    name = "one-run"
    paper = "Steinke et al. 2023"
    assumptions = (FAIR_COINS,)

    def plan(self, scores: Array, coins: Integers, remaining: int, task: Task) -> GuessPlan:
        # Any plan is valid; if delta is asked for, the plan is for delta 0.
        delta = task.question.delta if isinstance(task.question, AtDelta) else 0.0
        return choose_guesses(scores, coins, remaining, delta=delta, significance=task.significance)

    def answer(self, seen: Guesses, task: Task) -> Answer:
        question, level = task.question, task.significance
        if not isinstance(question, AtDelta):
            value = one_run_delta(seen, epsilon=question.epsilon, significance=level)
            return Answer(value=value)
        # The choice between two valid bounds depends on no random number.
        bound = recursion_epsilon if seen.canaries * question.delta > 0.02 else one_run_epsilon
        return Answer(value=bound(seen, delta=question.delta, significance=level))
