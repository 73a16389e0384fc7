r"""Bayesian lower bounds on epsilon from error counts, with Jeffreys' prior.

Both error rates get Jeffreys' prior, Beta(1/2, 1/2). ``jeffreys`` bounds each rate by a
quantile of its own posterior and combines the two limits; ``joint-beta`` uses the posterior of
epsilon itself, a function of both rates, and is tighter.

These are *credible* bounds: the stated probability is over the prior, not over repetitions of
the audit. Their error rate over audits exceeds the stated one. Over all counts (sampled at the
largest sizes) of 20 to 2,500 a side at 95 %, and many pairs of error rates, false claims
reached 13 % for ``jeffreys`` (few errors on both sides). For ``joint-beta`` they are 5 % where one
direction decides, 10-12 % for randomised response at epsilon 1, and reach 27 % where both error
rates are small and alike: there epsilon is the larger of two equal numbers, and the posterior of a
maximum lies above it.

A test that is worse than chance also shows a leak, if its decisions are reversed. If the reversed
test counts, as in the paper, the posterior of epsilon has no mass at 0, and its lower quantile is
above 0 even without any leak: always a false claim. The lower bounds here therefore use only the
test "a high score means inserted"; :func:`joint_beta_interval` counts both, as published.

References:
    Zanella-Béguelin et al.: *Bayesian Estimation of Differential Privacy* (ICML 2023,
    arXiv 2206.05199).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import NumericalError
from dpaudit.lower_bounds._count_arrays import broadcast_counts
from dpaudit.lower_bounds._joint_posterior import (
    RatePosterior,
    kept_both_ways_probability,
    kept_probability,
)
from dpaudit.lower_bounds.clopper_pearson import delta_of_errors, epsilon_of_errors

_Kept = Callable[[RatePosterior, RatePosterior, Array, Array], tuple[Array, Array, Array]]

# Thresholds in one block; limits memory to about 50 MB.
_BLOCK = 4096

_MOST_STEPS = 200


def jeffreys_epsilon(*counts: ArrayLike, delta: float, significance: float) -> Array:
    r"""Lower bound on epsilon from Jeffreys upper bounds on both error rates.

    Half of ``significance`` goes to each rate, then
    :math:`\epsilon \ge \log\frac{1-\delta-\beta}{\alpha}` and
    :math:`\epsilon \ge \log\frac{1-\delta-\alpha}{\beta}`.

    See also: :func:`joint_beta_epsilon`, tighter; Clopper-Pearson, with guaranteed coverage.

    Zanella-Béguelin et al. 2023. Credible, not confidence: see the module.

    Arguments:
        counts: False positives, false negatives, negatives and positives, one per threshold.
        delta: Probability that goes with epsilon, in [0, 1).
        significance: Accepted probability, over both rates, that the bound is too high.

    Returns:
        One bound for each threshold, at least 0 and finite; 0 where a class is empty.

    Example:
        >>> bound = jeffreys_epsilon(20, 10, 500, 500, delta=1e-5, significance=0.05)
        >>> round(float(bound), 6)
        3.285296
    """
    delta = _validate.delta(delta)
    alpha, beta, known = _jeffreys_upper(counts, significance)
    return np.where(known, epsilon_of_errors(alpha, beta, delta), 0.0)


def jeffreys_delta(*counts: ArrayLike, epsilon: float, significance: float) -> Array:
    """Lower bound on delta at ``epsilon``; otherwise as :func:`jeffreys_epsilon`.

    Example:
        >>> bound = jeffreys_delta(20, 10, 500, 500, epsilon=1.0, significance=0.05)
        >>> round(float(bound), 4)
        0.8444
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    alpha, beta, known = _jeffreys_upper(counts, significance)
    return np.where(known, delta_of_errors(alpha, beta, epsilon), 0.0)


def joint_beta_epsilon(*counts: ArrayLike, delta: float, significance: float) -> Array:
    r"""Lower quantile of the posterior of epsilon.

    Epsilon is a function of both error rates, so it has a posterior:
    :math:`P(\epsilon \le e)` is the mass of the pairs of rates that keep (e, delta). The bound is
    the e where this is ``significance``. Accurate to 1e-7 for significance of 1e-8 or more; the
    public implementation stops its search at 1e-2 and gives 3.4072 for the example below.

    See also: :func:`joint_beta_interval` for both ends.

    Zanella-Béguelin et al. 2023, the joint model of two independent binomials, for the
    test as it is and not its opposite. Credible, not confidence: see the module.

    Arguments:
        counts: False positives, false negatives, negatives and positives, one per threshold.
        delta: Probability that goes with epsilon, in [0, 1).
        significance: Posterior probability that the bound is too high.

    Returns:
        One bound for each threshold, at least 0 and finite; 0 where a class is empty.

    Example:
        >>> bound = joint_beta_epsilon(20, 10, 500, 500, delta=1e-5, significance=0.05)
        >>> round(float(bound), 4)
        3.4055
    """
    delta = _validate.delta(delta)
    significance = _validate.between("significance", significance, 0, 1)
    columns = broadcast_counts(*counts)
    return _epsilon_quantile(columns, delta, significance, kept_probability)


def joint_beta_delta(*counts: ArrayLike, epsilon: float, significance: float) -> Array:
    """Lower quantile of the posterior of delta at ``epsilon``; else as `joint_beta_epsilon`.

    Example:
        >>> bound = joint_beta_delta(20, 10, 500, 500, epsilon=1.0, significance=0.05)
        >>> round(float(bound), 4)
        0.8685
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    significance = _validate.between("significance", significance, 0, 1)
    columns = broadcast_counts(*counts)

    def solve(alpha: RatePosterior, beta: RatePosterior) -> Array:
        # exp(700) is about the largest float; delta is 0 long before.
        fixed = np.full_like(alpha.low, min(epsilon, 700.0))

        def kept(rows: NDArray[np.bool_], delta: Array) -> tuple[Array, Array]:
            value, _, slope = kept_probability(alpha.at(rows), beta.at(rows), fixed[rows], delta)
            return value, slope

        return _quantile(kept, np.zeros_like(alpha.low), significance, highest=1.0)

    return _by_block(columns, solve)


def joint_beta_interval(
    *counts: ArrayLike, delta: float, significance: float
) -> tuple[Array, Array]:
    r"""Equal-tailed credible interval of epsilon, counting a test and its opposite.

    ``significance``/2 lies below the interval and as much above. This is the published definition.
    Its lower end is above 0 also without any leak, so it is not a valid lower bound; use
    :func:`joint_beta_epsilon` for that.

    Zanella-Béguelin et al. 2023. Arguments as for :func:`joint_beta_epsilon`.

    Example:
        >>> low, high = joint_beta_interval(512, 0, 513, 487, delta=1e-5, significance=0.1)
        >>> round(float(low), 3), round(float(high), 3)
        (0.144, 6.416)
    """
    delta = _validate.delta(delta)
    tail = _validate.between("significance", significance, 0, 1) / 2
    columns = broadcast_counts(*counts)
    low = _epsilon_quantile(columns, delta, tail, kept_both_ways_probability)
    high = _epsilon_quantile(columns, delta, 1 - tail, kept_both_ways_probability)
    return low, high


def _jeffreys_upper(
    counts: tuple[ArrayLike, ...], significance: float
) -> tuple[Array, Array, NDArray[np.bool_]]:
    tail = _validate.between("significance", significance, 0, 1) / 2
    fp, fn, n, p = broadcast_counts(*counts)
    # One minus the lower quantile of the success rate keeps its digits for tiny tails. Where
    # every decision was wrong the interval reaches 1, or its coverage would sink to 0 there.
    alpha = np.where(fp == n, 1.0, 1 - betaincinv(n - fp + 0.5, fp + 0.5, tail))
    beta = np.where(fn == p, 1.0, 1 - betaincinv(p - fn + 0.5, fn + 0.5, tail))
    return alpha, beta, (n > 0) & (p > 0)


def _epsilon_quantile(
    counts: tuple[Array, Array, Array, Array], delta: float, level: float, kept_by: _Kept
) -> Array:
    def solve(alpha: RatePosterior, beta: RatePosterior) -> Array:
        fixed = np.full_like(alpha.low, delta)

        def kept(rows: NDArray[np.bool_], epsilon: Array) -> tuple[Array, Array]:
            value, slope, _ = kept_by(alpha.at(rows), beta.at(rows), epsilon, fixed[rows])
            return value, slope

        # A first guess: both rates unlucky at once, each by its share of the normal deviation.
        share = float(ndtr(-ndtri(level) / np.sqrt(2)))
        start = epsilon_of_errors(
            betaincinv(alpha.errors, alpha.successes, share),
            betaincinv(beta.errors, beta.successes, share),
            delta,
        )
        return _quantile(kept, start, level, highest=np.inf)

    return _by_block(counts, solve)


def _by_block(
    counts: tuple[Array, Array, Array, Array],
    solve: Callable[[RatePosterior, RatePosterior], Array],
) -> Array:
    """Solve for every threshold, in blocks; 0 if a class has no scores."""
    fp, fn, n, p = (v.ravel() for v in counts)
    result = np.zeros_like(fp)
    known = np.flatnonzero((n > 0) & (p > 0))
    for first in range(0, known.size, _BLOCK):
        rows = known[first : first + _BLOCK]
        alpha = RatePosterior.from_counts(fp[rows], n[rows] - fp[rows])
        beta = RatePosterior.from_counts(fn[rows], p[rows] - fn[rows])
        result[rows] = solve(alpha, beta)
    return result.reshape(counts[0].shape)


def _quantile(
    cdf: Callable[[NDArray[np.bool_], Array], tuple[Array, Array]],
    start: Array,
    level: float,
    *,
    highest: float,
) -> Array:
    """Where an increasing distribution function on [0, highest) reaches ``level``; 0 if at once.

    Newton's method on the normal-quantile scale, on which a posterior is nearly a straight line,
    inside a bracket that is halved if a step would leave it.
    """
    target = ndtri(level)
    low, high = np.zeros_like(start), np.full_like(start, highest)
    every = np.ones(start.shape, dtype=bool)
    open_rows = cdf(every, low)[0] < level
    x = np.where(open_rows, np.maximum(start, 1e-3), 0.0)
    for _ in range(_MOST_STEPS):
        if not open_rows.any():
            return x
        here, below, above = x[open_rows], low[open_rows], high[open_rows]
        value, slope = cdf(open_rows, here)
        reached = value >= level
        below, above = np.where(reached, below, here), np.where(reached, here, above)
        with np.errstate(all="ignore"):
            z = ndtri(value)
            step = (z - target) * np.exp(-z * z / 2) / (np.sqrt(2 * np.pi) * slope)
            newton = here - step
        halved = np.where(np.isinf(above), 2 * below + 1, (below + above) / 2)
        inside = np.isfinite(newton) & (newton > below) & (newton < above)
        after = np.where(inside, newton, halved)
        low[open_rows], high[open_rows], x[open_rows] = below, above, after
        # A Newton step squares the error, so one step of 1e-6 is the last that matters.
        moved = np.abs(after - here) / (1 + here)
        done = moved <= np.where(inside, 1e-6, 1e-12)
        open_rows[open_rows] = ~done
    raise NumericalError("the posterior quantile did not converge; please report the counts")
