r"""Lower bounds from one training run with many canaries, each inserted by its own fair coin.

The auditor looks at one output of the mechanism, guesses some of the coins and abstains on the
others. If the mechanism is (epsilon, delta)-DP, each guess is right with probability at most
:math:`e^\epsilon/(1+e^\epsilon)` *whatever the other guesses turned out to be*, so no independence
between canaries is needed: too many right guesses refute the claim.

What is assumed, here and in :mod:`dpaudit.lower_bounds.one_run_fdp`:

- every canary was inserted by a fair coin, independent of all other coins and of the data.
  "Exactly half of the canaries" is *not* that: fixing the total makes the coins dependent;
- the guesses, and on which canaries to abstain, depend on the coins only through the output.

Nothing is assumed about how the canaries interact inside the run.

References:
    Steinke, Nasr, Jagielski: *Privacy Auditing with One (1) Training Run* (NeurIPS 2023,
    arXiv 2305.08846): the main theorem for approximate DP, and its p-value in the appendix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, expit, gammaln, logit

from dpaudit import _validate
from dpaudit.errors import InvalidInput, InvalidScores

Array = NDArray[np.float64]

# Halvings of an interval of epsilon: 1e-14 of its length, where rounding of the p-value takes over.
_HALVINGS = 46


@dataclass(frozen=True, kw_only=True)
class GuessPlan:
    """How many canaries to guess at each end of the ranking; the ones between are abstentions.

    Arguments:
        top: Number of highest scores guessed "inserted".
        bottom: Number of lowest scores guessed "not inserted".
    """

    top: int
    bottom: int


def one_run_p_value(
    correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float
) -> float:
    r"""P-value of "the mechanism is (epsilon, delta)-DP" after ``correct`` right guesses.

    With :math:`B \sim \mathrm{Binomial}(r, e^\epsilon/(1+e^\epsilon))` it is

    .. math:: P(B \ge v) + 2 m \delta \max_{1 \le i \le v} \tfrac1i P(v - i \le B < v).

    See also: :func:`one_run_epsilon` and :func:`one_run_delta`, which invert it.

    Steinke et al. 2023, main theorem. Assumes fair independent coins (see the module).

    Arguments:
        correct: Number :math:`v` of right guesses.
        guesses: Number :math:`r` of guesses; the other canaries were abstained on.
        canaries: Number :math:`m` of canaries, abstentions included.
        epsilon: Privacy loss of the claim, at least 0.
        delta: Probability of the claim, in [0, 1).

    Example:
        >>> round(one_run_p_value(90, 100, 100, epsilon=2.0, delta=1e-5), 6)
        0.342797
    """
    correct, guesses, canaries = check_counts(correct, guesses, canaries)
    epsilon, delta = _validate.non_negative("epsilon", epsilon), _validate.delta(delta)
    tail, slope = _tail_and_slope(correct, guesses, epsilon)
    return min(1.0, tail + 2 * canaries * delta * slope)


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float, significance: float
) -> float:
    r"""Lower bound on epsilon at ``delta`` from the guesses of one run.

    The largest epsilon whose p-value is at most ``significance``; 0 where not even epsilon 0 is
    refuted. True with probability at least 1 - ``significance`` over coins and mechanism.

    See also: :func:`count_guesses` for the counts, :func:`choose_guesses` for the plan.

    Steinke et al. 2023. Assumes fair independent coins (see the module), and that the numbers of
    guesses were not chosen by looking at the coins of these same canaries.

    Arguments:
        correct: Number of right guesses.
        guesses: Number of guesses.
        canaries: Number of canaries, abstentions included.
        delta: Probability that goes with epsilon, in [0, 1).
        significance: Accepted probability of a false claim, in (0, 1).

    Example:
        >>> round(one_run_epsilon(2807, 3376, 20_000, delta=1e-6, significance=0.05 / 386), 5)
        1.13346
    """
    correct, guesses, canaries = check_counts(correct, guesses, canaries)
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    high = _pure_epsilon(correct, guesses, significance)
    if delta == 0 or high == 0:
        return high

    def rejected(epsilon: float) -> bool:
        tail, slope = _tail_and_slope(correct, guesses, epsilon)
        return tail + 2 * canaries * delta * slope <= significance

    # The p-value only grows with delta, so the bound at delta 0 is above the one we look for.
    if not rejected(0.0):
        return 0.0
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if rejected(middle):
            low = middle
        else:
            high = middle
    return low


def one_run_delta(
    correct: int, guesses: int, canaries: int, *, epsilon: float, significance: float
) -> float:
    r"""Lower bound on delta at ``epsilon`` from the guesses of one run.

    The p-value is linear in delta, so the largest refuted delta has a closed form. Same theorem
    and assumptions as :func:`one_run_epsilon`.

    Example:
        >>> one_run_delta(990, 1000, 1000, epsilon=1.0, significance=0.05) > 1e-3
        True
    """
    correct, guesses, canaries = check_counts(correct, guesses, canaries)
    epsilon = _validate.non_negative("epsilon", epsilon)
    significance = _validate.between("significance", significance, 0, 1)
    tail, slope = _tail_and_slope(correct, guesses, epsilon)
    if tail >= significance:
        return 0.0
    # slope > 0 here: it vanishes only with no right guess, where the tail is 1.
    return min(1.0, (significance - tail) / (2 * canaries * slope))


def count_guesses(
    scores: ArrayLike,
    inserted: ArrayLike,
    top: int,
    bottom: int,
    *,
    tie_break: np.random.Generator | None = None,
) -> tuple[int, int]:
    """Right guesses and guesses when the highest scores are called inserted, the lowest not.

    Canaries that tie at the edge of either group could be taken or left. Without ``tie_break``
    the least favourable of them are taken, so that the count is at most what any rule blind to
    the coins would give and the bound stays valid. With it they are taken at random, which is
    valid too, and better where scores take few values.

    The number of guesses never depends on the scores; the f-DP bound needs that.

    See also: :func:`choose_guesses`.

    Arguments:
        scores: One score for each canary; higher means "inserted".
        inserted: The coins, 0 or 1, in the same order.
        top: Number of highest scores guessed "inserted".
        bottom: Number of lowest scores guessed "not inserted".
        tie_break: Source of randomness for ties; `None` takes the least favourable.

    Example:
        >>> count_guesses([0.1, 0.9, 0.8, 0.2, 0.5], [0, 1, 1, 1, 0], top=2, bottom=2)
        (3, 4)
        >>> count_guesses([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0], top=2, bottom=0)
        (0, 2)
    """
    scores, coins = _check_scores(scores, inserted)
    top, bottom = _validate.integer("top", top), _validate.integer("bottom", bottom)
    if top + bottom > scores.size:
        raise InvalidInput(
            f"top + bottom must be at most the number of canaries, {scores.size}, "
            f"got {top} + {bottom}; no canary can be guessed twice"
        )
    if tie_break is not None:
        shuffled = tie_break.permutation(scores.size)
        order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
        right = coins[order[:top]].sum() + (1 - coins[order[scores.size - bottom :]]).sum()
        return int(right), top + bottom
    right = _least_favourable(-scores, coins, np.array([top]))
    right = right + _least_favourable(scores, 1 - coins, np.array([bottom]))
    return int(right[0]), top + bottom


def choose_guesses(
    pilot_scores: ArrayLike,
    pilot_inserted: ArrayLike,
    remaining: int,
    *,
    delta: float,
    significance: float,
) -> GuessPlan:
    r"""How many of the ``remaining`` canaries to guess, learnt from pilot canaries of the same run.

    Tries many shares of top and bottom guesses on the pilot, predicts what each would give on the
    rest, and returns the one with the largest predicted bound.

    The pilot costs nothing in validity. Its coins are independent of the others', so once
    they are revealed they are simply part of the fixed data: given them, the mechanism is still
    (epsilon, delta)-DP in each remaining coin and those coins are still fair and independent. The
    theorem then holds with ``remaining`` as the number of canaries. What would *not* be valid
    is to evaluate the plan on the pilot canaries again, or to pick the best plan on all canaries.

    See also: :func:`count_guesses`, :func:`one_run_epsilon`.

    Arguments:
        pilot_scores: Scores of the pilot canaries, drawn at random from those of the run.
        pilot_inserted: Their coins, 0 or 1.
        remaining: Number of canaries that are left to evaluate.
        delta: Probability at which epsilon will be bounded.
        significance: Significance at which it will be bounded.

    Example:
        >>> import numpy as np
        >>> coins = np.arange(200) % 2
        >>> choose_guesses(coins + 0.001 * np.arange(200), coins, 1800, delta=0, significance=0.05)
        GuessPlan(top=900, bottom=900)
    """
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    plans = candidate_plans(pilot_scores, pilot_inserted, remaining)

    def bound(correct: int, guesses: int) -> float:
        return one_run_epsilon(correct, guesses, remaining, delta=delta, significance=significance)

    ceilings = np.array(
        [
            _pure_epsilon(c, g, significance)
            for c, g in zip(plans.correct, plans.guesses, strict=True)
        ]
    )
    return best_plan(plans, ceilings, bound)


@dataclass(frozen=True, kw_only=True)
class CandidatePlans:
    """Plans for the remaining canaries, and what the pilot predicts of each; arrays of one length.

    Arguments:
        top: Numbers of guesses "inserted".
        bottom: Numbers of guesses "not inserted".
        correct: Predicted numbers of right guesses.
    """

    top: NDArray[np.int64]
    bottom: NDArray[np.int64]
    correct: NDArray[np.int64]

    @property
    def guesses(self) -> NDArray[np.int64]:
        """Numbers of guesses."""
        return self.top + self.bottom


def candidate_plans(
    pilot_scores: ArrayLike, pilot_inserted: ArrayLike, remaining: int
) -> CandidatePlans:
    """Plans worth considering, with the right guesses the pilot predicts for the rest."""
    scores, coins = _check_scores(pilot_scores, pilot_inserted)
    remaining = _validate.integer("remaining", remaining)
    size = scores.size
    if size == 0 or remaining == 0:
        nothing = np.zeros(1, dtype=np.int64)
        return CandidatePlans(top=nothing, bottom=nothing, correct=nothing)
    # Shares grow geometrically: what matters is the order of magnitude of the number of guesses.
    ends = np.unique(np.r_[0, np.geomspace(1, size, 32).round(), size // 2]).astype(np.int64)
    right_top = _least_favourable(-scores, coins, ends)
    right_bottom = _least_favourable(scores, 1 - coins, ends)
    first, second = (
        grid.ravel() for grid in np.meshgrid(np.arange(ends.size), np.arange(ends.size))
    )
    fits = ends[first] + ends[second] <= size
    first, second = first[fits], second[fits]
    guesses = ends[first] + ends[second]
    right = right_top[first] + right_bottom[second]
    # Posterior median under Jeffreys' prior, not the raw share: one lucky guess at the very top of
    # a small pilot must not look like certainty.
    accuracy = betaincinv(right + 0.5, guesses - right + 0.5, 0.5)
    top, bottom = ends[first] * remaining // size, ends[second] * remaining // size
    correct = np.floor(accuracy * (top + bottom)).astype(np.int64)
    return CandidatePlans(top=top, bottom=bottom, correct=correct)


def best_plan(
    plans: CandidatePlans, ceilings: Array, bound: Callable[[int, int], float]
) -> GuessPlan:
    """The plan with the largest ``bound(correct, guesses)``.

    ``ceilings`` are cheap numbers no smaller than the bounds: plans are tried from the highest
    ceiling down, and the search ends where no plan left can win.
    """
    best, winner = -math.inf, 0
    for index in np.argsort(-ceilings, kind="stable"):
        if ceilings[index] <= best:
            break
        value = bound(int(plans.correct[index]), int(plans.guesses[index]))
        if value > best:
            best, winner = value, int(index)
    return GuessPlan(top=int(plans.top[winner]), bottom=int(plans.bottom[winner]))


def _pure_epsilon(correct: int, guesses: int, significance: float) -> float:
    """The bound at delta 0: the Clopper-Pearson lower limit of a guess's accuracy, as log-odds."""
    if correct == 0:
        return 0.0
    accuracy = betaincinv(correct, guesses - correct + 1, significance)
    return max(0.0, float(logit(accuracy)))


def _tail_and_slope(correct: int, guesses: int, epsilon: float) -> tuple[float, float]:
    r""":math:`P(B \ge v)` and :math:`\max_i P(v-i \le B < v)/i`, the p-value's slope in 2 m delta.

    The maximum is the largest average of the probabilities of v-1, v-2, ..., v-i. They rise to
    the mode and fall after it, so the average rises until the next probability is below it and
    never again: the best i is found by bisection, in place of the sum over all i.
    """
    if correct == 0:
        return 1.0, 0.0
    success, failure = float(expit(epsilon)), float(expit(-epsilon))
    log_odds = epsilon
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
        log_p = log_start - gammaln(k + 1) - gammaln(guesses - k + 1) + k * log_odds
        return math.exp(min(0.0, log_p))

    low, high = 1, correct
    while low < high:
        middle = (low + high) // 2
        if probability(correct - middle - 1) > average(middle):
            low = middle + 1
        else:
            high = middle
    return tail, max(0.0, average(low))


def _least_favourable(
    keys: Array, hits: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Fewest hits among the ``counts`` smallest keys, over all ways to break ties."""
    # Within a tie the misses come first.
    order = np.lexsort((hits, keys))
    return np.r_[0, np.cumsum(hits[order])][counts]


def _check_scores(scores: ArrayLike, inserted: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    values = np.asarray(scores, dtype=float)
    coins = np.asarray(inserted)
    if values.ndim != 1 or values.shape != coins.shape:
        raise InvalidScores(
            "scores and inserted must be one-dimensional and of one length, "
            f"got shapes {values.shape} and {coins.shape}"
        )
    if np.isnan(values).any():
        raise InvalidScores(f"scores must not be NaN, {int(np.isnan(values).sum())} of them are")
    if not np.isin(coins, (0, 1)).all():
        raise InvalidScores("inserted must hold only 0 and 1")
    return values, coins.astype(np.int64)


def check_counts(correct: int, guesses: int, canaries: int) -> tuple[int, int, int]:
    canaries = _validate.integer("canaries", canaries)
    guesses = _validate.integer("guesses", guesses)
    correct = _validate.integer("correct", correct)
    if not correct <= guesses <= canaries:
        raise InvalidScores(
            "counts must satisfy correct <= guesses <= canaries, "
            f"got {correct}, {guesses} and {canaries}"
        )
    return correct, guesses, canaries
