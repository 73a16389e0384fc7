r"""Joint test of both error rates at one threshold against a trade-off function.

Counts of errors at a fixed threshold are two independent binomials with rates :math:`(\alpha,
\beta)`. A mechanism with trade-off function at least :math:`f` has :math:`\beta \ge f(\alpha)`.

**Order.** Pairs of counts are ordered by how far below the curve they lie: the distance from the
curve after Anscombe's transformation, which gives both counts a standard deviation of about 1. This
is close to the order by likelihood ratio, and is computed in closed form. For a family of curves
that fall with a parameter, the order is by the parameter at which the distance is the normal
quantile of the level.

**Probability.** The pairs at least as extreme as the observed one form a region that contains, with
a pair, every pair with fewer errors. Its probability falls as either rate grows, so the largest
probability under the claim is attained on the curve. By Berger and Boos (1994) only rates that are
not excluded by upper confidence limits at level :math:`\gamma/2` each need be considered, and
:math:`\gamma` is added. For a family this gives Buehler's (1957) bound: since the region does not
depend on the parameter, the p-value rises with it and the inversion is exact.

References:
    Buehler: *Confidence intervals for the product of two binomial parameters* (JASA 1957).
    Berger, Boos: *P values maximized over a confidence set for the nuisance parameter* (JASA 1994).
    Anscombe: *The transformation of Poisson, binomial and negative-binomial data* (1948).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaincc, ndtr, ndtri

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import Curve, Family
from dpaudit.lower_bounds.bands import upper_rate
from dpaudit.lower_bounds.counts import ErrorCounts

# Up to here scipy's bdtr is right to 1e-8; at 1e8 trials it is wrong by 0.1, past 2**31 it is NaN.
_MOST_TRIALS_OF_BDTR = 10**6
# Points of the curve in either coordinate, and rows of the region. Fewer rows enlarge the region.
_POINTS, _ROWS = 128, 160
# Points around the nearest one.
_REFINED = 65
# The distance exceeds that from the curve by less than this.
_SLACK = 2e-3
# The supremum is found on a grid that is refined around all peaks of at least this share of the
# highest one, to this relative accuracy.
_HIGH, _ROUND_UP = 0.95, 1 + 2e-4
# Part of a p-value: the error probability of the confidence set of Berger and Boos.
_GAMMA = 1e-5


@final
@dataclass(frozen=True, kw_only=True)
class _Observed:
    """The counts at one threshold, and how unlikely they are under a curve."""

    false_positives: int
    false_negatives: int
    negatives: int
    positives: int

    def limits(self, tail: float) -> tuple[float, float]:
        """Upper confidence limits on both rates, each false with probability ``tail``."""
        return (
            _upper_rate(self.false_positives, self.negatives, tail),
            _upper_rate(self.false_negatives, self.positives, tail),
        )

    def points(self, curve: Curve) -> Array:
        """False-positive rates of points near the counts; dense in either coordinate."""
        highest, other = self.limits(1e-14)
        here = _even(float(curve.tradeoff(np.array(other))), highest, _POINTS)
        there = _even(float(curve.tradeoff(np.array(highest))), other, _POINTS)
        alpha = np.concatenate([here, curve.tradeoff(there), curve.kinks])
        return np.sort(np.clip(alpha, 0.0, 1.0))

    def placed(self, curve: Curve, alpha: Array) -> tuple[Array, Array]:
        """Points of the curve, transformed."""
        return (
            _transformed(self.negatives * alpha, self.negatives),
            _transformed(self.positives * curve.tradeoff(alpha), self.positives),
        )

    def distance(self, curve: Curve) -> float:
        """How far the counts lie below the curve; 0 if they do not."""
        x = _transformed(self.false_positives, self.negatives)
        y = _transformed(self.false_negatives, self.positives)
        alpha = self.points(curve)
        for _ in range(2):  # all points, then more around the nearest one
            u, v = self.placed(curve, alpha)
            distances = np.hypot(np.maximum(u - x, 0), np.maximum(v - y, 0))
            nearest = int(distances.argmin())
            around = slice(max(nearest - 1, 0), nearest + 2)
            gap = float(np.hypot(np.diff(u[around]), np.diff(v[around])).max())
            alpha = np.linspace(alpha[around][0], alpha[around][-1], _REFINED)
        # The nearest point of the curve may lie between two of the points.
        return float(np.sqrt(max(float(distances[nearest]) ** 2 - (gap / 2) ** 2, 0.0)))

    def region(self, curve: Curve, distance: float) -> tuple[Array, Array]:
        """Counts at least so far below the curve, as steps: x at most xs[i] and y at most ys[i]."""
        highest, other = self.limits(1e-14)
        lowest = float(curve.tradeoff(np.array(min(1.0, 1.2 * other))))
        spread = 8 * np.sqrt(self.negatives * np.array([lowest, highest])) + 8
        first = max(0, int(self.negatives * lowest * 0.8 - spread[0]))
        last = min(self.negatives, int(self.negatives * highest + spread[1]))
        rows = np.unique(np.linspace(first, last, _ROWS).astype(np.int64))
        u, v = self.placed(curve, self.points(curve))
        gap = np.maximum(u - _transformed(rows, self.negatives)[:, None], 0)
        within = np.sqrt(np.maximum(distance**2 - gap**2, 0))
        edge = np.where(gap < distance, v - within, np.inf).min(axis=1)
        most = np.floor(_counts(edge, self.positives) + 1e-9)
        most = np.where(edge < _transformed(0, self.positives) - 1e-9, -1, most)
        most[rows <= self.false_positives] = np.maximum(
            most[rows <= self.false_positives], self.false_negatives
        )
        # Below the first row everything counts; a row stands for all up to the next one.
        most = np.minimum(np.concatenate([[self.positives], most]), self.positives)
        until = np.concatenate([rows - 1, [last]]).astype(float)
        kept = (most >= 0) & (until >= 0) & np.append(most[1:] != most[:-1], True)
        return until[kept], most[kept]

    def probability(self, region: tuple[Array, Array], alpha: Array, beta: Array) -> Array:
        """Probability of the region at each pair of rates."""
        xs, ys = region
        if len(xs) == 0:
            return np.zeros(len(alpha))
        below = _at_most(xs, self.negatives, alpha[:, None])
        share = np.diff(below, axis=1, prepend=0.0)
        return np.asarray((share * _at_most(ys, self.positives, beta[:, None])).sum(axis=1))

    def p_value(self, region: tuple[Array, Array], curve: Curve, gamma: float) -> float:
        """The largest probability of the region on the part of the curve not excluded by gamma."""
        highest, other = self.limits(gamma / 2)
        lowest = float(curve.tradeoff(np.array(other)))
        if lowest >= highest:
            return gamma
        there = curve.tradeoff(_even(float(curve.tradeoff(np.array(highest))), other, 14))
        kinks = np.array([kink for kink in curve.kinks if lowest <= kink <= highest])
        alpha = np.sort(np.concatenate([_even(lowest, highest, 18), there, kinks]))
        alpha, best = np.clip(alpha, lowest, highest), 0.0
        for _ in range(3):
            values = self.probability(region, alpha, curve.tradeoff(alpha))
            highest_here = float(values.max())
            best = max(best, highest_here)
            # A kink makes a peak of its own, beside which the highest one may stand.
            left, right = np.diff(values, prepend=-1.0) > 0, np.diff(values, append=-1.0) <= 0
            peaks = np.flatnonzero(left & right & (values >= _HIGH * highest_here))
            ends = np.maximum(peaks - 1, 0), np.minimum(peaks + 1, len(alpha) - 1)
            alpha = np.sort(np.linspace(alpha[ends[0]], alpha[ends[1]], 7).ravel())
        return min(1.0, best * _ROUND_UP + gamma)


def curve_p_value(counts: ErrorCounts, curve: Curve) -> float:
    """P-value of the hypothesis that the trade-off function is at least ``curve``.

    Arguments:
        counts: The errors at one threshold that was fixed without these scores.
        curve: The trade-off function.

    Example:
        >>> from dpaudit.curves import gaussian_curve
        >>> counts = ErrorCounts.given(
        ...     true_positives=470, false_negatives=30, false_positives=20, true_negatives=480
        ... )
        >>> round(curve_p_value(counts, gaussian_curve(3.0)), 3)
        0.013
    """
    seen = _observed(counts)
    distance = seen.distance(curve) - _SLACK
    return 1.0 if distance <= 0 else seen.p_value(seen.region(curve, distance), curve, _GAMMA)


def distances(counts: ErrorCounts, curve: Curve) -> Array:
    """About how far the counts at each threshold lie below the curve, in standard deviations."""
    alpha = ndtr(np.linspace(-6, 6, 300))
    alpha = np.concatenate([alpha, curve.tradeoff(alpha)])
    u = _transformed(counts.negatives * alpha, counts.negatives)
    v = _transformed(counts.positives * curve.tradeoff(alpha), counts.positives)
    x = _transformed(counts.false_positives, counts.negatives)[:, None]
    y = _transformed(counts.false_negatives, counts.positives)[:, None]
    return np.asarray(np.hypot(np.maximum(u - x, 0), np.maximum(v - y, 0)).min(axis=1))


def refuted(counts: ErrorCounts, family: Family, significance: float) -> float:
    """The largest parameter of a family of falling curves that the counts refute; 0 if none.

    Arguments:
        counts: The errors at one threshold that was fixed without these scores.
        family: The curve of each parameter.
        significance: Error probability of the bound.
    """
    return _refuted(_observed(counts), family, significance)


@lru_cache(maxsize=4096)
def _refuted(seen: _Observed, family: Family, significance: float) -> float:
    """`refuted`, remembered: audits of few scores often have the same counts."""
    gamma = significance / 100
    level = -float(ndtri(min(significance, 0.49)))
    start = min(1.0, family.highest)
    distance = seen.distance(family.curve(0.0))
    ordering = 0.0
    if distance > level:
        ordering = sign_change(
            lambda parameter: level - seen.distance(family.curve(parameter)),
            0.0,
            start,
            tolerance=1e-7,
        )[1]
        distance = level
    if distance <= _SLACK:
        return 0.0
    region = seen.region(family.curve(ordering), distance - _SLACK)

    @lru_cache
    def excess(parameter: float) -> float:
        p = seen.p_value(region, family.curve(parameter), gamma)
        return float(np.log(p / significance))

    low = 0.93 * ordering
    if excess(low) > 0:  # the p-value rises with the parameter, so 0 is refuted if `low` is
        low = 0.0
        if excess(low) > 0:
            return 0.0
    return sign_change(excess, low, min(1.03 * ordering + 1e-3, family.highest), tolerance=1e-6)[0]


def _observed(counts: ErrorCounts) -> _Observed:
    return _Observed(
        false_positives=int(counts.false_positives[0]),
        false_negatives=int(counts.false_negatives[0]),
        negatives=counts.negatives,
        positives=counts.positives,
    )


@lru_cache(maxsize=8)
def _upper_rate(errors: int, trials: int, tail: float) -> float:
    """`upper_rate` of one count; every step of a search asks for the same few."""
    return float(upper_rate(errors, trials, tail))


def _transformed(count: ArrayLike, trials: int) -> Array:
    """Anscombe's transformation: a standard deviation of about 1 at every rate."""
    rate = (np.asarray(count, dtype=float) + 0.375) / (trials + 0.75)
    return np.asarray(2 * np.sqrt(trials + 0.5) * np.arcsin(np.sqrt(rate)))


def _counts(transformed: Array, trials: int) -> Array:
    """The inverse of Anscombe's transformation, at most ``trials``."""
    angle = np.clip(transformed / (2 * np.sqrt(trials + 0.5)), 0, np.pi / 2)
    return np.asarray(np.minimum(np.sin(angle) ** 2 * (trials + 0.75) - 0.375, trials))


def _even(low: float, high: float, points: int) -> Array:
    """Rates from low to high, evenly spaced in the arcsine of their root."""
    ends = np.arcsin(np.sqrt(np.clip([low, high], 0.0, 1.0)))
    return np.asarray(np.sin(np.linspace(ends[0], ends[1], points)) ** 2)


def _at_most(counts: Array, trials: int, rates: Array) -> Array:
    """P(Binomial(trials, rate) <= count), for every count and rate."""
    if trials <= _MOST_TRIALS_OF_BDTR:
        return np.asarray(bdtr(counts, trials, rates))
    # The same probability as an incomplete beta function: right at any size, ten times slower.
    tail = betaincc(counts + 1, np.maximum(trials - counts, 1), rates)
    return np.where(counts < trials, tail, 1.0)
