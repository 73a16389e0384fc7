r"""One p-value from both error rates at one threshold: is this trade-off curve kept?

At the true error rates :math:`(\alpha, \beta)` the binomial p-values of "so few false positives"
and "so few false negatives" are independent and no smaller than uniform, and Fisher's combination
of them is a p-value. A mechanism that keeps the curve :math:`f` has :math:`\beta \ge f(\alpha)`,
and p-values fall as rates grow; so the combination at :math:`(\alpha, f(\alpha))`, made as large
as any :math:`\alpha` allows, is a p-value for the curve. Two separate confidence limits, each at
half the level, would answer the same question with less power.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincc, ndtr

from dpaudit._roots import sign_change
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.tradeoff import gaussian_tradeoff

Array = NDArray[np.float64]
Curve = Callable[[Array], Array]

# Up to here scipy's bdtr is right to 1e-8; at 1e8 trials it is wrong by 0.1, past 2**31 it is NaN.
_MOST_TRIALS_OF_BDTR = 10**6


def curve_p_value(counts: ErrorCounts, curve: Curve, *, cells: int = 3000) -> Array:
    """The p-value of a trade-off curve that is its own inverse, at each threshold by itself.

    The supremum over the unknown false-positive rate is taken over ``cells`` that cover [0, 1].
    Reading each binomial p-value at the smallest rate of the cell makes the maximum an upper bound
    of the supremum: few cells cost power, never validity.
    """
    edges = _rate_edges(counts, curve, cells)
    product = _at_most(counts.false_positives, counts.negatives, edges[:, :-1]) * _at_most(
        counts.false_negatives, counts.positives, curve(edges[:, 1:])
    )
    # Fisher's combination of two independent p-values with product w: w (1 - ln w).
    product = np.clip(product, 1e-300, 1.0).max(axis=-1)
    return np.asarray(product * (1 - np.log(product)))


def refuted_mu(counts: ErrorCounts, significance: float) -> float:
    """The largest mu whose Gaussian curve is refuted by the errors at one threshold; 0 if none.

    Example:
        >>> counts = ErrorCounts.given(
        ...     true_positives=470, false_negatives=30, false_positives=20, true_negatives=480
        ... )
        >>> round(refuted_mu(counts, 0.05), 3)
        3.032
    """

    def excess(mu: float) -> float:
        p = curve_p_value(counts, lambda alpha: gaussian_tradeoff(alpha, mu), cells=1200)
        return float(np.log(p[0] / significance))

    if excess(0.0) > 0:
        return 0.0
    # The lower end: its p-value is at most the significance.
    return sign_change(excess, 0.0, 1.0, tolerance=1e-6)[0]


def _rate_edges(counts: ErrorCounts, curve: Curve, cells: int) -> Array:
    """Edges of cells that cover [0, 1], one row a threshold.

    A third is spread over everything. The others lie around the two observed error rates, where
    the supremum is: with many scores a p-value goes from 0 to 1 within a narrow range of rates. The
    curve is its own inverse, so it turns false-negative rates into false-positive ones.
    """
    third = cells // 3
    everywhere = np.broadcast_to(ndtr(np.linspace(-9, 9, third)), (len(counts), third))
    here = _around(counts.false_positives, counts.negatives, third)
    there = curve(_around(counts.false_negatives, counts.positives, third))
    ends = np.broadcast_to([0.0, 1.0], (len(counts), 2))
    return np.sort(np.concatenate([everywhere, here, there, ends], axis=1), axis=1)


def _around(errors: NDArray[np.int64], trials: int, points: int) -> Array:
    """Rates within eight standard deviations of the observed one, shape (thresholds, points)."""
    rate = (errors + 0.5) / (trials + 1)
    deviation = np.sqrt(rate * (1 - rate) / trials)
    spread = rate[:, None] + deviation[:, None] * np.linspace(-8, 8, points)
    return np.asarray(np.clip(spread, 0.0, 1.0))


def _at_most(errors: NDArray[np.int64], trials: int, rates: Array) -> Array:
    """P(Binomial(trials, rate) <= errors), shape (thresholds, rates)."""
    seen = errors[:, None].astype(float)
    if trials <= _MOST_TRIALS_OF_BDTR:
        return np.asarray(bdtr(seen, trials, rates))
    # The same probability as an incomplete beta function: right at any size, ten times slower.
    tail = betaincc(seen + 1, np.maximum(trials - seen, 1), rates)
    return np.where(seen < trials, tail, 1.0)
