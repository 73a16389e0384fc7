r"""The joint test of both error rates at one threshold, and the bounds that it gives.

**Theorem.** Let the scores with and without the canary be independent, and let the threshold be
chosen without them. (1) If the mechanism's trade-off function is at least :math:`f`, then
:math:`P(\text{p-value} \le \alpha) \le \alpha` for every :math:`\alpha`. (2) If it is at least the
curve :math:`f_\theta` of a falling family, then :math:`P(\text{bound} > \theta) \le` significance.

**Proof.** The counts of false positives and false negatives are independent binomials with rates
:math:`(a, b)` and :math:`b \ge f(a)`. Let :math:`T` be a number that is computed from the counts,
and :math:`R` a set of pairs of counts that contains all pairs with at least the observed
:math:`T`, and with a pair all pairs with fewer errors. Then :math:`P_{a,b}(R)` falls as either rate
grows, so among the rates that the claim allows it is largest on the curve.

(1) By Berger and Boos (1994), only rates between Clopper-Pearson limits need be considered if
:math:`\gamma` is added: a limit fails with probability at most :math:`\gamma`, and otherwise the
p-value is at least the probability of :math:`R` under the true rates. These can be lowered within
the limits, first :math:`b`, then :math:`a`, until they are on the curve, or both at their lower
limits; in the latter case the p-value is set to 1. :math:`\gamma` may depend on the level at which
the test decides, and does: a smaller one is used where the p-value is below `_LADDER`'s steps. An
audit whose p-value is at most :math:`\alpha` has a p-value of at most :math:`\alpha` with the
:math:`\gamma` of the level :math:`\alpha`, too.

The lower limits matter where one kind of error did not occur: :math:`R` then also contains all
counts without the other kind, which are likely only where that rate is far below the observed one.
Without lower limits, zero errors would be bounded at half of the level or, for an event of
probability near 1 that never occurs on the other side, at the level of the upper limit, which costs
up to 1.2 of epsilon. With them zero of n errors have all of the level but :math:`\gamma`:
:math:`(1-b)^n = \alpha - \gamma`.

(2) Here :math:`T` is a parameter and :math:`R` does not depend on the parameter that is tested
(Buehler 1957). Curves fall, so the p-value of :math:`f_\theta` rises with :math:`\theta`, and the
bound exceeds the true parameter only if the p-value there is at most the significance.

**Order.** :math:`T` is the distance of the counts below the curve after Anscombe's transformation,
which gives both counts a standard deviation of about 1. This is close to the order by likelihood
ratio, and is computed in closed form. For a family it is the largest parameter whose curve is as
far away as the normal quantile of the level.

**Numerical allowances**, all on the safe side:

- *Distance.* It is computed on points of the curve. `_is_as_far` shows that the curve is nowhere
  nearer than the number used minus `_SLACK`, and :math:`R` is taken larger by `_SLACK`.
- *Region.* Few rows and few points of the curve stand for all; both enlarge :math:`R`.
- *Supremum.* It is searched on a grid. The result, rounded up by `_ROUND_UP`, is then proven by
  branch and bound, with two upper bounds on a piece of the curve. The simple one is the probability
  at the corner of both smaller rates. The sharp one uses a lemma: in natural parameters
  :math:`x = \log\tfrac{a}{1-a}, y = \log\tfrac{b}{1-b}`, the logarithm of :math:`P(R)
  (1+e^x)^{n} (1+e^y)^{m}` is the logarithm of a sum of exponentials of linear functions, hence
  convex, and is at most its chord on any segment below the curve. Where the proof fails, the
  number is raised until it succeeds, and a bound lowered.
- *Probabilities* are right to a relative 2e-9; the proof demands a margin of `_ROUNDING`.

References:
    Buehler: *Confidence intervals for the product of two binomial parameters* (JASA 1957).
    Berger, Boos: *P values maximized over a confidence set for the nuisance parameter* (JASA 1994).
    Anscombe: *The transformation of Poisson, binomial and negative-binomial data* (1948).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, betaincc, betaincinv, ndtr, ndtri

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import Curve, Family
from dpaudit.lower_bounds.counts import ErrorCounts, upper_rate

# Up to here scipy's bdtr is right to 2e-9; at 1e8 trials it is wrong by 0.1, past 2**31 it is NaN.
_MOST_TRIALS_OF_BDTR = 10**6
# Where error rates are larger, the counts have no weight.
_NEGLIGIBLE = 2e-14
# Points of the curve in either coordinate, and rows of the region. Fewer rows enlarge the region.
_POINTS, _ROWS = 128, 160
# Points around the nearest one, added until neighbours are nearer to each other than this. Of many
# scores, points without may be apart by more than the distance itself.
_REFINED, _APART, _MOST_TURNS = 65, 0.1, 6
# The distance exceeds that from the curve by less than this.
_SLACK = 2e-3
# The supremum is searched on a grid that is refined around all peaks of at least this share of the
# highest one, and rounded up.
_HIGH, _ROUND_UP = 0.95, 1 + 2e-4
# Boxes in a piece of the curve, and most pieces in a proof.
_BOXES, _MOST_PIECES = 256, 1000
# Relative margin for the rounding errors of probabilities; smaller probabilities count as this one.
_ROUNDING, _TINY = 1e-8, 1e-300
# Above each p-value, the error probability of the confidence set of Berger and Boos.
_LADDER = ((1e-3, 1e-5), (1e-5, 1e-7), (1e-7, 1e-9), (1e-9, 1e-11), (0.0, 1e-13))
# The same for a bound, as a share of its significance.
_SHARE = 0.01
# The share of it that the lower limits have, which need not be near.
_LOWER = 0.05

Region = tuple[Array, Array]
"""Pairs of counts as steps: x at most xs[i] and y at most ys[i], for some i."""

Limits = tuple[tuple[float, float], tuple[float, float]]
"""Lower and upper confidence limits of both error rates."""


def curve_p_value(counts: ErrorCounts, curve: Curve) -> float:
    """P-value of the hypothesis that the trade-off function is at least ``curve``.

    See also: `curve_refuted`, faster where only the decision at one level matters.

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
    region = _region_of(counts, curve)
    if region is None:
        return 1.0
    rungs = 0
    for least, gamma in _LADDER:
        rungs += 1
        limits = _limits(counts, gamma)
        searched = _searched(counts, region, curve, limits)
        highest = searched[0] * _ROUND_UP
        if highest + gamma >= least:
            break
    proven, step = max(highest, gamma / 1e3), 1e-4
    while proven < 1 and not _proven(counts, region, curve, searched, proven):
        proven, step = proven * (1 + step), 2 * step
    # The smallest level at which the test refutes with the gamma of that level. What is proven with
    # one gamma holds with every larger one.
    levels = (max(least, proven + gamma) for least, gamma in _LADDER[:rungs])
    return min(1.0, *levels)


def curve_refuted(counts: ErrorCounts, curve: Curve, significance: float) -> bool:
    """Whether the p-value of the curve is at most ``significance``; stops at this level.

    Example:
        >>> from dpaudit.curves import gaussian_curve
        >>> counts = ErrorCounts.given(
        ...     true_positives=470, false_negatives=30, false_positives=20, true_negatives=480
        ... )
        >>> curve_refuted(counts, gaussian_curve(3.0), 0.05)
        True
    """
    region = _region_of(counts, curve)
    if region is None:
        return significance >= 1
    gamma = next(gamma for least, gamma in _LADDER if significance >= least)
    left = significance - gamma
    searched = _searched(counts, region, curve, _limits(counts, gamma), enough=left)
    return _proven(counts, region, curve, searched, left)


def at_one_threshold(counts: ErrorCounts, family: Family, significance: float) -> float:
    """The largest parameter of a family that the counts refute; 0 if none.

    Arguments:
        counts: The errors at one threshold that was fixed without these scores.
        family: The curve of each parameter.
        significance: Error probability of the bound.
    """
    curve, gamma = family.curve, significance * _SHARE
    level = -float(ndtri(min(significance, 0.49)))
    distance, ordering = _distance(counts, curve(0.0)), 0.0
    if distance > level:
        ordering = sign_change(
            lambda parameter: level - _distance(counts, curve(parameter)),
            0.0,
            min(1.0, family.highest),
            tolerance=1e-7,
        )[1]
        distance = level
    # A smaller parameter is farther away; it costs tightness only.
    while ordering > 0 and not _is_as_far(counts, curve(ordering), distance - _SLACK):
        ordering = ordering * 0.999 if ordering > 1e-6 else 0.0
    if ordering == 0.0:
        distance = min(distance, _proven_distance(counts, curve(0.0)))
    if distance <= _SLACK:
        return 0.0
    region = _region(counts, curve(ordering), distance - _SLACK)
    limits = _limits(counts, gamma)
    searched = lru_cache(lambda parameter: _searched(counts, region, curve(parameter), limits))
    p_value = lru_cache(lambda parameter: min(1.0, searched(parameter)[0] * _ROUND_UP + gamma))
    low = 0.93 * ordering
    if p_value(low) > significance:  # it rises with the parameter: 0 is refuted if `low` is
        low = 0.0
        if p_value(low) > significance:
            return 0.0
    high = min(1.03 * ordering + 1e-3, family.highest)
    refuted, _ = sign_change(
        lambda parameter: float(np.log(p_value(parameter) / significance)),
        low,
        high,
        tolerance=1e-6,
    )
    bound, step = refuted, 1e-6
    left = significance - gamma
    while bound > 0 and not _proven(counts, region, curve(bound), searched(bound), left):
        bound, step = max(bound * (1 - step), 0.0), 2 * step
        bound = bound if step < 1 else 0.0
    return bound


def distances_of(
    false_positives: ArrayLike,
    false_negatives: ArrayLike,
    negatives: int,
    positives: int,
    curve: Curve,
) -> Array:
    """About how far errors at each threshold lie below the curve, in standard deviations.

    The numbers of errors may be expected ones, which are not whole.
    """
    alpha = ndtr(np.linspace(-6, 6, 300))
    alpha = np.concatenate([alpha, curve.inverse(alpha)])
    u = _transformed(negatives * alpha, negatives)
    v = _transformed(positives * curve.tradeoff(alpha), positives)
    x = _transformed(false_positives, negatives)[:, None]
    y = _transformed(false_negatives, positives)[:, None]
    return np.asarray(np.hypot(np.maximum(u - x, 0), np.maximum(v - y, 0)).min(axis=1))


def _limits(counts: ErrorCounts, gamma: float) -> Limits:
    """Clopper-Pearson limits that hold jointly, except with probability ``gamma``."""
    both = []
    for errors, trials in (
        (int(counts.false_positives.item()), counts.negatives),
        (int(counts.false_negatives.item()), counts.positives),
    ):
        tail = _LOWER * gamma / 2
        lowest = float(betaincinv(errors, trials - errors + 1, tail)) if errors else 0.0
        both.append((lowest, upper_rate(errors, trials, gamma / 2 - tail).item()))
    return both[0], both[1]


def _points(counts: ErrorCounts, curve: Curve) -> Array:
    """False-positive rates of points near the counts; dense in either coordinate."""
    highest, other = (rate.item() for rate in counts.upper_rates(_NEGLIGIBLE))
    here = _even(float(curve.inverse(np.array(other))), highest, _POINTS)
    there = _even(float(curve.tradeoff(np.array(highest))), other, _POINTS)
    alpha = np.concatenate([here, curve.inverse(there), curve.kinks])
    return np.sort(np.clip(alpha, 0.0, 1.0))


def _gaps(counts: ErrorCounts, alpha: Array, beta: Array) -> Array:
    """How far each count lies below its error rate, after the transformation; two rows."""
    x = _transformed(counts.false_positives, counts.negatives)
    y = _transformed(counts.false_negatives, counts.positives)
    u = _transformed(counts.negatives * alpha, counts.negatives)
    v = _transformed(counts.positives * beta, counts.positives)
    return np.stack([u - x, v - y])


def _distance(counts: ErrorCounts, curve: Curve) -> float:
    """How far the counts lie below the curve, about; 0 if they do not."""
    alpha = _points(counts, curve)
    for turn in range(_MOST_TURNS):  # all points, then more and more around the nearest one
        gaps = _gaps(counts, alpha, curve.tradeoff(alpha))
        distances = np.hypot(*np.maximum(gaps, 0))
        nearest = int(distances.argmin())
        around = slice(max(nearest - 1, 0), nearest + 2)
        apart = float(np.hypot(*np.diff(gaps[:, around])).max())
        if turn > 0 and apart < _APART:
            break
        alpha = np.linspace(alpha[around][0], alpha[around][-1], _REFINED)
    # The nearest point of the curve may lie between two of the points.
    return float(np.sqrt(max(float(distances[nearest]) ** 2 - (apart / 2) ** 2, 0.0)))


def _is_as_far(counts: ErrorCounts, curve: Curve, distance: float) -> bool:
    """Whether the curve is proven to be nowhere nearer than this.

    Between two points of the curve, it is at least as far away as the corner of both smaller
    rates.
    """
    alpha = np.concatenate([[0.0], _points(counts, curve), [1.0]])
    left, right = alpha[:-1], alpha[1:]
    while len(left) <= 1000 * _MOST_PIECES:
        corners = _gaps(counts, left, curve.tradeoff(right))
        near = np.hypot(*np.maximum(corners, 0)) < distance
        left, right = left[near], right[near]
        if len(left) == 0:
            return True
        middle = (left + right) / 2
        nearer = np.hypot(*np.maximum(_gaps(counts, middle, curve.tradeoff(middle)), 0)) < distance
        if nearer.any() or (middle <= left).any():
            return False
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    return False


def _proven_distance(counts: ErrorCounts, curve: Curve) -> float:
    """A distance of which all but `_SLACK` is proven; at most `_SLACK` if nothing is."""
    distance = _distance(counts, curve)
    while distance > _SLACK and not _is_as_far(counts, curve, distance - _SLACK):
        distance = 0.98 * distance if distance > 0.1 else distance - _SLACK
    return distance


def _region_of(counts: ErrorCounts, curve: Curve) -> Region | None:
    """The counts that speak against the curve as much as these; `None` if these do not."""
    distance = _proven_distance(counts, curve) - _SLACK
    return None if distance <= 0 else _region(counts, curve, distance)


def _region(counts: ErrorCounts, curve: Curve, distance: float) -> Region:
    """The counts at least so far below the curve, and some more."""
    highest, other = (rate.item() for rate in counts.upper_rates(_NEGLIGIBLE))
    # The rows span a few standard deviations also where counts are large: fewer rows than counts
    # cost tightness, by the square root of the counts.
    other = min(1.0, 1.2 * other, other + 8 * np.sqrt(other / counts.positives))
    lowest = float(curve.inverse(np.array(other)))
    spread = 8 * np.sqrt(counts.negatives * np.array([lowest, highest])) + 8
    first = counts.negatives * lowest - spread[0] - min(0.2 * counts.negatives * lowest, spread[0])
    first = max(0, int(first))
    last = min(counts.negatives, int(counts.negatives * highest + spread[1]))
    rows = np.unique(np.linspace(first, last, _ROWS).astype(np.int64))
    alpha = _points(counts, curve)
    u = _transformed(counts.negatives * alpha, counts.negatives)
    v = _transformed(counts.positives * curve.tradeoff(alpha), counts.positives)
    gap = np.maximum(u - _transformed(rows, counts.negatives)[:, None], 0)
    within = np.sqrt(np.maximum(distance**2 - gap**2, 0))
    edge = np.where(gap < distance, v - within, np.inf).min(axis=1)
    # The largest counts within the edge: the inverse of the transformation, rounded down.
    angle = np.clip(edge / (2 * np.sqrt(counts.positives + 0.5)), 0, np.pi / 2)
    most = np.floor(np.sin(angle) ** 2 * (counts.positives + 0.75) - 0.375 + 1e-9)
    most = np.where(edge < _transformed(0, counts.positives) - 1e-9, -1, most)
    most[rows <= counts.false_positives] = np.maximum(
        most[rows <= counts.false_positives], counts.false_negatives
    )
    # Below the first row everything counts; a row stands for all up to the next one, and the
    # last one for all above.
    most = np.minimum(np.concatenate([[counts.positives], most]), counts.positives)
    until = np.concatenate([rows - 1, [counts.negatives]]).astype(float)
    steps = (most >= 0) & (until >= 0) & np.append(most[1:] != most[:-1], True)
    return until[steps], most[steps]


def _probability(counts: ErrorCounts, region: Region, alpha: Array, beta: Array) -> Array:
    """Probability of the region at each pair of rates."""
    if len(region[0]) == 0:
        return np.zeros(len(alpha))
    of_negatives, of_positives = (
        bdtr(most, trials, rates[:, None])
        if trials <= _MOST_TRIALS_OF_BDTR
        # The same as an incomplete beta function: right at any size, ten times slower.
        else np.where(
            most < trials, betaincc(most + 1, np.maximum(trials - most, 1), rates[:, None]), 1.0
        )
        for most, trials, rates in zip(
            region, (counts.negatives, counts.positives), (alpha, beta), strict=True
        )
    )
    share = np.diff(of_negatives, axis=1, prepend=0.0)
    return np.asarray((share * of_positives).sum(axis=1))


def _searched(
    counts: ErrorCounts,
    region: Region,
    curve: Curve,
    limits: Limits,
    enough: float = 1.0,
) -> tuple[float, Array]:
    """The largest probability found on the part of the curve between the limits.

    The search ends at a probability that is larger than ``enough``.

    Returns:
        The probability, 1 if the curve allows both lower limits; and the false-positive rates
        where it was computed, ascending.
    """
    (least, highest), (least_other, other) = limits
    until = float(curve.inverse(np.array(least_other)))
    if until <= least or float(curve.tradeoff(np.array(least))) <= least_other:
        return 1.0, np.empty(0)
    highest = min(highest, until)
    lowest = max(least, float(curve.inverse(np.array(other))))
    if lowest >= highest:
        return 0.0, np.empty(0)
    there = curve.inverse(_even(float(curve.tradeoff(np.array(highest))), other, 14))
    kinks = np.array([kink for kink in curve.kinks if lowest <= kink <= highest])
    alpha = np.sort(np.concatenate([_even(lowest, highest, 18), there, kinks]))
    alpha, largest, everywhere = np.clip(alpha, lowest, highest), 0.0, []
    for _ in range(3):
        everywhere.append(alpha)
        values = _probability(counts, region, alpha, curve.tradeoff(alpha))
        highest_here = float(values.max())
        largest = max(largest, highest_here)
        if largest > enough:
            break
        # A kink makes a peak of its own, beside which the highest one may stand.
        left, right = np.diff(values, prepend=-1.0) > 0, np.diff(values, append=-1.0) <= 0
        peaks = np.flatnonzero(left & right & (values >= _HIGH * highest_here))
        ends = np.maximum(peaks - 1, 0), np.minimum(peaks + 1, len(alpha) - 1)
        alpha = np.sort(np.linspace(alpha[ends[0]], alpha[ends[1]], 7).ravel())
    return largest, np.unique(np.concatenate(everywhere))


def _proven(
    counts: ErrorCounts,
    region: Region,
    curve: Curve,
    searched: tuple[float, Array],
    highest: float,
) -> bool:
    """Whether the region's probability is proven to be at most ``highest``.

    Arguments:
        region: The region.
        curve: The trade-off function.
        searched: What `_searched` returned; the proof is for the part of the curve it looked at.
        highest: The number that the probability must not exceed.
    """
    largest, alpha = searched
    if largest * _ROUND_UP > highest:
        return False
    left, right = alpha[:-1], alpha[1:]
    while 0 < len(left) <= _MOST_PIECES:
        # At the corner of both smaller rates the probability is at least as large.
        corners = _probability(counts, region, left, curve.tradeoff(right))
        larger = ~(corners * (1 + _ROUNDING) <= highest)
        left, right = left[larger], right[larger]
        larger = ~(_interpolated(counts, region, curve, left, right) <= highest)  # or NaN
        left, right = left[larger], right[larger]
        middle = (left + right) / 2
        values = _probability(counts, region, middle, curve.tradeoff(middle))
        if (values > highest).any() or (middle <= left).any():
            return False
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    return len(left) == 0


def _interpolated(
    counts: ErrorCounts, region: Region, curve: Curve, left: Array, right: Array
) -> Array:
    """Upper bounds on the region's probability on pieces of the curve, by the lemma.

    Each piece is cut into small boxes. A segment, in natural parameters, is placed below the
    corners of all boxes at which both rates are smallest.
    """
    share = np.linspace(0.0, 1.0, _BOXES + 1)
    alpha = left[:, None] + (right - left)[:, None] * share
    beta = np.clip(curve.tradeoff(alpha), _TINY, 1 - 1e-16)
    alpha = np.clip(alpha, _TINY, 1 - 1e-16)
    first = beta[:, 1:2]
    old = np.stack([alpha[:, :1], first])
    change = np.stack([alpha[:, :-1], beta[:, 1:]]) - old
    with np.errstate(all="ignore"):  # pieces with a rate of 0 or 1 may give NaN
        # Differences of logits, right where the rates hardly differ.
        x, y = np.log1p(change / old) - np.log1p(-change / (1 - old))
        slope, place = y[:, -1:] / x[:, -1:], x / x[:, -1:]
        shift = (y - slope * x).min(axis=1, keepdims=True)
        y = slope * x
        # Beta at both ends of the segment: the rates whose logits are larger by so much.
        shift = np.concatenate([shift, shift + y[:, -1:]], axis=1)
        start, end = np.split(first * np.exp(shift) / (1 + first * np.expm1(shift)), 2, axis=1)
        ends = (
            _probability(counts, region, alpha[:, 0], start[:, 0]),
            _probability(counts, region, alpha[:, -2], end[:, 0]),
        )
        logs = [np.log(np.maximum(end, _TINY))[:, None] for end in ends]
        growth = counts.negatives * np.log1p(alpha[:, :1] * np.expm1(x))
        growth += counts.positives * np.log1p(start * np.expm1(y))
        chord = (1 - place) * logs[0] + place * (logs[1] + growth[:, -1:])
        return np.asarray(np.exp((chord - growth).max(axis=1)) * (1 + _ROUNDING))


def _transformed(count: ArrayLike, trials: int) -> Array:
    """Anscombe's transformation: a standard deviation of about 1 at every rate."""
    rate = (np.asarray(count, dtype=float) + 0.375) / (trials + 0.75)
    return np.asarray(2 * np.sqrt(trials + 0.5) * np.arcsin(np.sqrt(rate)))


def _even(low: float, high: float, points: int) -> Array:
    """Rates from low to high, evenly spaced in the arcsine of their root."""
    ends = np.arcsin(np.sqrt(np.clip([low, high], 0.0, 1.0)))
    return np.asarray(np.sin(np.linspace(ends[0], ends[1], points)) ** 2)
