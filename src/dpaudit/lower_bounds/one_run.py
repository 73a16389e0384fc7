r"""Lower bounds from one training run with many canaries, each inserted by its own fair coin.

The auditor guesses some of the coins from one output of the mechanism and abstains on the others.

**Conditions** of both theorems:

- every canary was inserted by a fair coin, independent of all other coins and of the data.
  Inserting exactly half of the canaries is not allowed: it makes the coins dependent;
- the guesses, and on which canaries to abstain, depend on the coins only through the output;
- the number of guesses was fixed without the coins and scores of these canaries.

Nothing is assumed about how the canaries interact inside the run.

**Theorem 1** (Steinke et al.). If the mechanism is (epsilon, delta)-DP, then so many correct
guesses have at most the probability of `one_run_p_value`. At delta 0 each guess is correct with
probability at most :math:`e^\epsilon/(1+e^\epsilon)` given all other guesses.

**Theorem 2** (Mahloujifar et al.). If the mechanism's trade-off function is at least :math:`f` and
`guesses_refute` says so, then so many correct guesses have a probability below the significance.
Any trade-off function can be tested, and the bound is larger unless :math:`m\delta` is tiny.

**Proof.** Let :math:`W` be the number of correct guesses out of :math:`r`, for :math:`m` canaries.
Flipping the coin of one canary turns "guessed right, and at least :math:`c` right in all" into
"guessed wrong, and at least :math:`c-1` right in all". For an f-DP mechanism the probability of the
first is at most :math:`\bar f = 1 - f` of the second. Averaged over canaries (:math:`\bar f` is
concave), with

.. math:: R_c = E[\tfrac{W}{m} 1_{W \ge c}], \qquad H_c = E[\tfrac{r-W}{m} 1_{W \ge c}],

this gives :math:`R_c \le \bar f(H_{c-1})`, that is :math:`H_{c-1} \ge f(1 - R_c)`, for every
:math:`c`. If :math:`P(W \ge c)` were at least the significance, these inequalities, followed from
:math:`c` down to 0, would require a total probability above 1; then the function is refuted.

**The plan** comes from pilot canaries. Their coins are independent of the others, so given them the
remaining coins are still fair and independent, and the mechanism is still as private in each. The
theorems hold for the remaining canaries alone. It would not be valid to evaluate the plan on the
pilot canaries again.

The bound on mu does not reach the true mu even with many canaries: the first step of the recursion
compares probabilities of the size of the significance, where a Gaussian trade-off function is
steep. In return nothing is assumed about how canaries interact.

References:
    Steinke, Nasr, Jagielski: *Privacy Auditing with One (1) Training Run* (NeurIPS 2023,
    arXiv 2305.08846): the main theorem for approximate DP, and its p-value in the appendix.
    Mahloujifar, Melis, Chaudhuri: *Auditing f-Differential Privacy in One Run* (ICML 2025,
    arXiv 2410.22235): the recursion of its numerical algorithm, with two guessed values per coin.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, expit, gammaln, logit, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit._roots import sign_change
from dpaudit.curves import GAUSSIAN, Curve, Family, gaussian_curve
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, best_plan, candidate_plans


def of_guesses(guesses: Guesses, family: Family, significance: float) -> float:
    """The largest parameter of a family that the guesses of one run refute; 0 if none.

    Of two valid bounds for (epsilon, delta)-DP, the one that is tighter at this number of canaries
    and delta; the choice depends on no random number.
    """
    pairs = family.pairs
    if pairs is None:
        return largest_refuted(family, guesses, significance=significance, tolerance=1e-12)
    if pairs.delta is None:
        return one_run_delta(guesses, epsilon=pairs.epsilon or 0.0, significance=significance)
    if guesses.canaries * pairs.delta <= 0.02:
        return one_run_epsilon(guesses, delta=pairs.delta, significance=significance)
    return largest_refuted(family, guesses, significance=significance, tolerance=1e-10)


def plan_for(
    family: Family, scores: ArrayLike, coins: ArrayLike, remaining: int, *, significance: float
) -> GuessPlan:
    """How many of the remaining canaries to guess, learned from pilot canaries of the same run.

    Many numbers of guesses at both ends of the ranking are tried on the pilot. The plan with the
    largest bound that the pilot predicts for the rest is returned. For pairs at an epsilon, the
    plan is for delta 0.

    Example:
        >>> coins = np.arange(200) % 2
        >>> plan = plan_for(GAUSSIAN, coins + 1e-3 * np.arange(200), coins, 1800, significance=0.05)
        >>> plan.top, plan.bottom
        (900, 900)
    """
    plans = candidate_plans(scores, coins, remaining)
    if family is GAUSSIAN:
        share, wrong = significance / max(remaining, 1), plans.guesses - plans.correct
        # The recursion stops at once unless mu is below this.
        with np.errstate(invalid="ignore"):  # no guess at all: minus infinity on both sides
            ceilings = ndtri(share * plans.correct) - ndtri(share * wrong)
        return best_plan(
            plans,
            ceilings=np.where(plans.correct == 0, 0.0, np.where(wrong == 0, np.inf, ceilings)),
            refutes=lambda observed, mu: guesses_refute(gaussian_curve(mu), observed, significance),
            bound=lambda observed: of_guesses(observed, GAUSSIAN, significance),
        )
    delta = 0.0 if family.pairs is None else family.pairs.delta or 0.0
    return best_plan(
        plans,
        ceilings=_pure_epsilon(plans.correct, plans.guesses, significance),
        refutes=lambda observed, epsilon: (
            one_run_p_value(observed, epsilon=epsilon, delta=delta) <= significance
        ),
        bound=lambda observed: one_run_epsilon(observed, delta=delta, significance=significance),
    )


def guesses_refute(curve: Curve, observed: Guesses, significance: float) -> bool:
    """Whether so many right guesses have probability below ``significance``.

    Lower bounds ``right`` and ``wrong`` on :math:`R_i` and :math:`H_i`, for i from the number of
    right guesses down. The mass at exactly i of them adds in the proportion i to guesses - i.
    """
    correct, guesses, canaries = observed.correct, observed.guesses, observed.canaries
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    everything = guesses / canaries
    at_complement = curve.at_complement or (lambda x: float(curve.tradeoff(np.array(1 - x))))
    for i in range(correct - 1, -1, -1):
        least = at_complement(right)
        if least <= wrong:
            return False  # the inequality holds without more mass, here and at every smaller i
        right += i / (guesses - i) * (least - wrong)
        wrong = least
        if right + wrong >= everything:
            return True
    return False


def largest_refuted(
    family: Family, observed: Guesses, *, significance: float, tolerance: float
) -> float:
    """The largest parameter of a family of trade-off functions that the guesses refute, or 0."""

    def excess(parameter: float) -> float:
        return -1.0 if guesses_refute(family.curve(parameter), observed, significance) else 1.0

    if observed.correct == 0 or excess(0.0) > 0:
        return 0.0
    return sign_change(excess, 0.0, 1.0, tolerance=tolerance)[0]


def one_run_p_value(observed: Guesses, *, epsilon: float, delta: float) -> float:
    r"""P-value of the claim that the mechanism is (epsilon, delta)-DP, from correct guesses.

    With :math:`v` of :math:`r` guesses correct, :math:`m` canaries, and
    :math:`B \sim \mathrm{Binomial}(r, e^\epsilon/(1+e^\epsilon))` it is

    .. math:: P(B \ge v) + 2 m \delta \max_{1 \le i \le v} \tfrac1i P(v - i \le B < v).

    See also: `one_run_epsilon` and `one_run_delta`, which invert it.

    Example:
        >>> round(one_run_p_value(Guesses(90, 100, 100), epsilon=2.0, delta=1e-5), 6)
        0.342797
    """
    epsilon, delta = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)
    tail, slope = _tail_and_slope(observed, epsilon)
    return min(1.0, tail + 2 * observed.canaries * delta * slope)


def one_run_epsilon(observed: Guesses, *, delta: float, significance: float) -> float:
    r"""Lower bound on epsilon at ``delta`` from the guesses of one run.

    The largest epsilon whose p-value is at most ``significance``, or 0 if there is none.

    Example:
        >>> observed = Guesses(2807, 3376, 20_000)
        >>> round(one_run_epsilon(observed, delta=1e-6, significance=0.05 / 386), 5)
        1.13346
    """
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    counts = np.asarray(observed.correct), np.asarray(observed.guesses)
    high = float(_pure_epsilon(*counts, significance))
    if delta == 0 or high == 0:
        return high

    def excess(epsilon: float) -> float:
        tail, slope = _tail_and_slope(observed, epsilon)
        return math.log(max(tail + 2 * observed.canaries * delta * slope, 1e-300) / significance)

    # The p-value grows with delta, so the bound at delta 0 is an upper end.
    if excess(0.0) > 0:
        return 0.0
    if excess(high) <= 0:
        return high
    return sign_change(excess, 0.0, high, tolerance=1e-14)[0]


def one_run_delta(observed: Guesses, *, epsilon: float, significance: float) -> float:
    r"""Lower bound on delta at ``epsilon`` from the guesses of one run.

    The p-value is linear in delta, so the largest refuted delta has a closed form.

    Example:
        >>> one_run_delta(Guesses(990, 1000, 1000), epsilon=1.0, significance=0.05) > 1e-3
        True
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    significance = _validate.between("significance", significance, 0, 1)
    tail, slope = _tail_and_slope(observed, epsilon)
    if tail >= significance:
        return 0.0
    # slope > 0 here: it vanishes only with no right guess, where the tail is 1.
    return min(1.0, (significance - tail) / (2 * observed.canaries * slope))


def _pure_epsilon(correct: Integers, guesses: Integers, significance: float) -> Array:
    """The bound at delta 0: the Clopper-Pearson lower limit of a guess's accuracy, as log-odds."""
    accuracy = betaincinv(np.maximum(correct, 1), guesses - correct + 1, significance)
    return np.where(correct == 0, 0.0, np.maximum(logit(accuracy), 0.0))


def _tail_and_slope(observed: Guesses, epsilon: float) -> tuple[float, float]:
    r""":math:`P(B \ge v)` and :math:`\max_i P(v-i \le B < v)/i`, the p-value's slope in 2 m delta.

    The maximum is the largest average of the probabilities of v-1, v-2, ..., v-i. The
    probabilities are unimodal, so the average rises until the next one is below it and falls from
    there: the best i is found by bisection.
    """
    correct, guesses = observed.correct, observed.guesses
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
