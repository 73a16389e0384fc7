r"""All thresholds at once: simultaneous bands, and the bounds that they give.

**Theorem.** Let the scores be independent, identically distributed with the canary and identically
distributed without it. With probability at least the confidence, the mechanism's trade-off function
passes below every point of `ProvenCurve`. So the largest parameter of a family through any of these
points is a lower bound, and thresholds, epsilon and delta may be chosen after seeing the scores.

**Proof.** Each of two bands fails with probability at most half of the significance. Where neither
fails, both error rates of every threshold are at most their upper limits, and a trade-off function
falls. The band is computed as follows.

If :math:`j` of :math:`n` scores lie above a threshold, Clopper and Pearson bound the probability of
lying above it by the :math:`1-\gamma` quantile of :math:`\mathrm{Beta}(j+1, n-j)`. For one fixed
threshold :math:`\gamma` is the error probability. If the threshold is chosen after seeing the
scores, the bounds must hold for all :math:`j` together: with :math:`U_{(1)} < \dots < U_{(n)}` the
order statistics of uniforms, the bounds fail if :math:`U_{(i)} > b_i` for some :math:`i`, where
:math:`b_i` is the quantile with :math:`j = i-1`. Every :math:`i` gets the same *local level*
:math:`\gamma`, in the tails as in the centre. The DKW inequality is much wider in the tails, which
matter most for an audit.

The probability that the bounds fail is computed exactly, so the band is valid for any number of
scores. From `ALL_RANKS` scores on, the bounds are placed on a grid of ranks.

References:
    Aldor-Noiman et al.: *The power to see: a new graphical test of normality* (2013).
    Moscovich, Nadler: *Fast calculation of boundary crossing probabilities* (2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import next_fast_len
from scipy.special import gammaln

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit.curves import Family, delta_of_errors, epsilon_of_errors
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts, middle_of_best, upper_rate
from dpaudit.scores.table import Scores

ALL_RANKS = 2_000
# Distance of neighbouring ranks of the grid in standard deviations of a count, up to 50,000 scores;
# beyond, the number of ranks is constant. A confidence limit is about 3.5 of them away.
_SPACING = 0.5
# States of the Markov chain beyond so many standard deviations are left out, which only raises
# the probability of failure: by less than 1e-12.
_REACH = 7.5
# A smaller probability of failure is lost in the rounding of its complement.
_SMALLEST_TAIL = 1e-9


def at_every_threshold(
    counts: ErrorCounts, family: Family, significance: float
) -> tuple[float, int | None]:
    """The largest parameter that the counts at all thresholds refute, or 0, and where."""
    if len(counts) == 0:
        return 0.0, None
    parameters = family.through(*simultaneous_rates(counts, significance))
    place = middle_of_best(parameters)
    return max(0.0, float(parameters[place])), place


def simultaneous_rates(counts: ErrorCounts, significance: float) -> tuple[Array, Array]:
    """Upper limits on both error rates that hold at all thresholds together."""
    return (
        simultaneous_band(counts.negatives, significance / 2).upper(counts.false_positives),
        simultaneous_band(counts.positives, significance / 2).upper(counts.false_negatives),
    )


@final
@dataclass(frozen=True, kw_only=True)
class ProvenCurve:
    """Points that lie above the mechanism's trade-off function, at one confidence.

    With probability ``confidence`` the true trade-off function passes below every point
    ``(false_positive_upper[i], false_negative_upper[i])``. The observed rates are
    ``false_positive_rate`` and ``false_negative_rate``.
    """

    thresholds: Array
    false_positive_rate: Array
    false_negative_rate: Array
    false_positive_upper: Array
    false_negative_upper: Array
    confidence: float
    sample_size: int

    def delta_at(self, epsilon: ArrayLike) -> Array:
        """Lower bound on delta at each epsilon; they hold together."""
        alpha, beta = self.false_positive_upper, self.false_negative_upper
        each = np.asarray(epsilon, dtype=float)
        deltas = [delta_of_errors(alpha, beta, level).max(initial=0.0) for level in each.ravel()]
        return np.array(deltas).reshape(each.shape)

    def epsilon_at(self, delta: float) -> float:
        """Lower bound on epsilon at one delta; all of them hold together."""
        delta = _validate.delta(delta)
        alpha, beta = self.false_positive_upper, self.false_negative_upper
        return float(epsilon_of_errors(alpha, beta, delta).max(initial=0.0))

    def to_dict(self, *, points: int = 101) -> dict[str, Any]:
        """Curve and trade-off points as plain lists, thinned to about ``points``."""
        top = max(self.epsilon_at(0.0), 1e-3)
        epsilons = np.linspace(0.0, top, points)
        size = len(self.thresholds)
        keep = np.unique(np.linspace(0, max(size - 1, 0), min(points, size)).astype(int))
        return {
            "profile": {"epsilon": epsilons.tolist(), "delta": self.delta_at(epsilons).tolist()},
            "trade_off": {
                "false_positive_rate": self.false_positive_rate[keep].tolist(),
                "false_negative_rate": self.false_negative_rate[keep].tolist(),
                "false_positive_upper": self.false_positive_upper[keep].tolist(),
                "false_negative_upper": self.false_negative_upper[keep].tolist(),
            },
        }


def proven_curve(scores: Scores, *, confidence: float = 0.95) -> ProvenCurve:
    """The proven trade-off points of ``scores``, at one simultaneous confidence.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 500), random.normal(0, 1, 500))
        >>> curve = proven_curve(scores)
        >>> bool((np.diff(curve.delta_at([0, 0.5, 1, 2])) <= 0).all())
        True
    """
    significance = 1 - _validate.confidence(confidence)
    if scores.inserted.all() or not scores.inserted.any():
        raise InvalidScores(
            f"a proven curve needs scores with and without the canary, got {scores!r}"
        )
    counts = ErrorCounts.sweep(scores.inserted_scores, scores.other_scores)
    alpha, beta = simultaneous_rates(counts, significance)
    return ProvenCurve(
        thresholds=counts.thresholds,
        false_positive_rate=counts.false_positives / counts.negatives,
        false_negative_rate=counts.false_negatives / counts.positives,
        false_positive_upper=alpha,
        false_negative_upper=beta,
        confidence=confidence,
        sample_size=counts.sample_size,
    )


@final
@dataclass(frozen=True, kw_only=True)
class Band:
    """Simultaneous upper bounds on the rate of ``j`` errors in ``trials``, for every ``j``.

    Arguments:
        trials: :math:`n`.
        local_level: :math:`\\gamma`.
        ranks: The order statistics that the band is built on; a count between two of them takes
            the bound of the next larger one, which is conservative.
    """

    trials: int
    local_level: float
    ranks: Integers

    def upper(self, errors: ArrayLike) -> Array:
        """Upper bound on the error rate where ``errors`` were counted."""
        count = np.asarray(errors, dtype=np.int64)
        place = np.searchsorted(self.ranks, count + 1)
        past = place >= len(self.ranks)
        rank = self.ranks[np.minimum(place, len(self.ranks) - 1)]
        return np.where(past, 1.0, upper_rate(rank - 1, self.trials, self.local_level))


@lru_cache(maxsize=256)
def simultaneous_band(trials: int, tail: float) -> Band:
    """The band that fails anywhere with probability at most ``tail``.

    Example:
        >>> band = simultaneous_band(2500, 0.025)
        >>> bool(3e-4 < band.local_level < 6e-4)
        True
    """
    ranks = rank_grid(trials)
    level = union_level = tail / len(ranks)
    if tail < _SMALLEST_TAIL:
        return Band(trials=trials, local_level=union_level, ranks=ranks)
    if trials > 1:
        # A fit to computed levels. The probability of failure is nearly proportional to the level.
        log_size = np.log(trials)
        level = tail / max(1.0, 2.5 + 3.3 * log_size + 0.35 * log_size**2)
    for _ in range(8):
        failing = crossing_probability(trials, level, ranks)
        if (1 - 1e-3) * tail <= failing <= tail:
            return Band(trials=trials, local_level=level, ranks=ranks)
        level *= (1 - 3e-4) * tail / failing
    return Band(trials=trials, local_level=union_level, ranks=ranks)


def rank_grid(trials: int) -> Integers:
    """All ranks of few scores; of many, ranks whose distance grows with the spread of a count."""
    if trials <= ALL_RANKS:
        return np.arange(1, trials + 1)
    spacing = _SPACING * max(1.0, (trials / 5e4) ** 0.5)
    # The arcsine of the root of a rate has a constant spread.
    steps = int(np.ceil(np.pi * np.sqrt(trials) / spacing))
    even = trials * np.sin(np.linspace(0, np.pi / 2, steps + 1)) ** 2
    return np.unique(np.clip(np.round(even), 1, trials).astype(np.int64))


def crossing_probability(trials: int, local_level: float, ranks: Integers | None = None) -> float:
    r"""Probability that :math:`U_{(r)} > b_r` for some rank :math:`r` of the grid.

    The number of uniforms below :math:`t` is a Poisson process of rate :math:`n`, given that it
    ends at :math:`n`. The bounds hold if it is at least :math:`r` at every :math:`b_r`, so its
    distribution is followed from bound to bound by convolution, without the states below
    :math:`r` (Moscovich and Nadler 2017).
    """
    n = trials
    ranks = rank_grid(n) if ranks is None else ranks
    edge = upper_rate(ranks - 1, n, local_level)
    margin = _REACH * np.sqrt(n * edge * (1 - edge)) + 10
    highest = np.minimum(n, np.ceil(n * edge + margin)).astype(np.int64)
    means = n * np.diff(edge, prepend=0.0)
    lowest, mass = 0, np.ones(1)
    for rank, top, mean in zip(ranks.tolist(), highest.tolist(), means.tolist(), strict=True):
        first, kernel = _poisson(mean)
        moved = _convolve(mass, kernel)
        # State k of `moved` is the count lowest + first + k; counts below the rank have failed.
        start = lowest + first
        mass = moved[max(0, rank - start) : top + 1 - start]
        lowest = max(rank, start)
    left = n * (1 - edge[-1])
    counts = n - lowest - np.arange(len(mass))
    log_last = counts * np.log(left) - left - gammaln(counts + 1.0)
    log_total = n * np.log(n) - n - gammaln(n + 1.0)
    return float(max(1 - mass @ np.exp(log_last - log_total), 0.0))


def _poisson(mean: float) -> tuple[int, Array]:
    """The first count and the probabilities of a Poisson variable, without negligible tails."""
    spread = _REACH * np.sqrt(mean) + 12
    first = max(0, int(mean - spread))
    counts = np.arange(first, int(mean + 1.5 * spread) + 1)
    return first, np.exp(counts * np.log(mean) - mean - gammaln(counts + 1.0))


def _convolve(left: Array, right: Array) -> Array:
    if len(left) * len(right) < 200_000:
        return np.convolve(left, right)
    size = len(left) + len(right) - 1
    length = next_fast_len(size, real=True)
    product = np.fft.rfft(left, length) * np.fft.rfft(right, length)
    # Round-off may leave a tiny negative number.
    return np.maximum(np.fft.irfft(product, length)[:size], 0.0)
