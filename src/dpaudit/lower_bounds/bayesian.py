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
test "a high score means inserted".

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
from dpaudit.curves import epsilon_of_errors, pairs_family
from dpaudit.errors import NumericalError
from dpaudit.lower_bounds._joint_posterior import RatePosterior, kept_probability
from dpaudit.lower_bounds.counts import broadcast_counts
from dpaudit.lower_bounds.questions import AtDelta, Question

Kept = Callable[[RatePosterior, RatePosterior, Array, Array], tuple[Array, Array, Array]]

# Thresholds in one block; limits memory to about 50 MB.
_BLOCK = 4096

_MOST_STEPS = 200


def jeffreys(*counts: ArrayLike, question: Question, significance: float) -> Array:
    r"""Lower bound on epsilon or delta from Jeffreys upper bounds on both error rates.

    Half of ``significance`` goes to each rate, then
    :math:`\epsilon \ge \log\frac{1-\delta-\beta}{\alpha}` and
    :math:`\epsilon \ge \log\frac{1-\delta-\alpha}{\beta}`.

    See also: :func:`joint_beta`, tighter; Clopper-Pearson, with guaranteed coverage.

    Zanella-Béguelin et al. 2023. Credible, not confidence: see the module.

    Arguments:
        counts: False positives, false negatives, negatives and positives, one per threshold.
        question: What is bounded.
        significance: Accepted probability, over both rates, that the bound is too high.

    Returns:
        One bound for each threshold, at least 0 and finite; 0 where a class is empty.

    Example:
        >>> from dpaudit.privacy import AtEpsilon
        >>> counts = (20, 10, 500, 500)
        >>> round(float(jeffreys(*counts, question=AtDelta(1e-5), significance=0.05)), 6)
        3.285296
        >>> round(float(jeffreys(*counts, question=AtEpsilon(1.0), significance=0.05)), 4)
        0.8444
    """
    tail = _validate.between("significance", significance, 0, 1) / 2
    fp, fn, n, p = broadcast_counts(*counts)
    # One minus the lower quantile of the success rate keeps its digits for tiny tails. Where
    # every decision was wrong the interval reaches 1, or its coverage would sink to 0 there.
    alpha = np.where(fp == n, 1.0, 1 - betaincinv(n - fp + 0.5, fp + 0.5, tail))
    beta = np.where(fn == p, 1.0, 1 - betaincinv(p - fn + 0.5, fn + 0.5, tail))
    return np.where((n > 0) & (p > 0), pairs_family(question).through(alpha, beta), 0.0)


def joint_beta(*counts: ArrayLike, question: Question, significance: float) -> Array:
    r"""Lower quantile of the posterior of epsilon, or of delta.

    Epsilon is a function of both error rates, so it has a posterior:
    :math:`P(\epsilon \le e)` is the mass of the pairs of rates that keep (e, delta). The bound is
    the e where this is ``significance``; the same holds for delta. Accurate to 1e-7 for
    significance of 1e-8 or more; the public implementation stops its search at 1e-2 and gives
    3.4072 for the example below.

    Zanella-Béguelin et al. 2023, the joint model of two independent binomials, for the
    test as it is and not its opposite. Credible, not confidence: see the module.

    Arguments:
        counts: False positives, false negatives, negatives and positives, one per threshold.
        question: What is bounded.
        significance: Posterior probability that the bound is too high.

    Returns:
        One bound for each threshold, at least 0 and finite; 0 where a class is empty.

    Example:
        >>> from dpaudit.privacy import AtEpsilon
        >>> counts = (20, 10, 500, 500)
        >>> round(float(joint_beta(*counts, question=AtDelta(1e-5), significance=0.05)), 4)
        3.4055
        >>> round(float(joint_beta(*counts, question=AtEpsilon(1.0), significance=0.05)), 4)
        0.8685
    """
    level = _validate.between("significance", significance, 0, 1)
    return quantiles(broadcast_counts(*counts), question, level, kept_probability)


def quantiles(
    counts: tuple[Array, Array, Array, Array], question: Question, level: float, kept_by: Kept
) -> Array:
    """Quantiles of the posterior of epsilon or delta, one for each threshold.

    Arguments:
        counts: False positives, false negatives, negatives and positives.
        question: What is bounded.
        level: Posterior probability below the quantile.
        kept_by: Probability that the rates keep a claim, with its derivatives.
    """

    def solve(alpha: RatePosterior, beta: RatePosterior) -> Array:
        if not isinstance(question, AtDelta):
            # exp(700) is about the largest float; delta is 0 long before.
            epsilon = np.full_like(alpha.low, min(question.epsilon, 700.0))

            def kept_at(rows: NDArray[np.bool_], delta: Array) -> tuple[Array, Array]:
                value, _, slope = kept_by(alpha.at(rows), beta.at(rows), epsilon[rows], delta)
                return value, slope

            return _quantile(kept_at, np.zeros_like(alpha.low), level, highest=1.0)
        fixed = np.full_like(alpha.low, question.delta)

        def kept(rows: NDArray[np.bool_], epsilon: Array) -> tuple[Array, Array]:
            value, slope, _ = kept_by(alpha.at(rows), beta.at(rows), epsilon, fixed[rows])
            return value, slope

        # A first guess: both rates unlucky at once, each by its share of the normal deviation.
        share = float(ndtr(-ndtri(level) / np.sqrt(2)))
        start = epsilon_of_errors(
            betaincinv(alpha.errors, alpha.successes, share),
            betaincinv(beta.errors, beta.successes, share),
            question.delta,
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
