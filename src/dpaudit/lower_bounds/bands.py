r"""One-sided bands that hold for a whole distribution function at once.

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
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import next_fast_len
from scipy.special import betainccinv, gammaln

from dpaudit._arrays import Array, Integers

ALL_RANKS = 2_000
# Distance of neighbouring ranks of the grid in standard deviations of a count, up to 50,000 scores;
# beyond, the number of ranks is constant. A confidence limit is about 3.5 of them away.
_SPACING = 0.5
# States of the Markov chain beyond so many standard deviations are left out, which only raises
# the probability of failure: by less than 1e-12.
_REACH = 7.5
# A smaller probability of failure is lost in the rounding of its complement.
_SMALLEST_TAIL = 1e-9


def upper_rate(errors: ArrayLike, trials: int, tail: float) -> Array:
    """Clopper-Pearson upper bound on an error rate, false with probability at most ``tail``.

    Example:
        >>> float(upper_rate(0, 500, 0.005).round(6))
        0.010541
    """
    errors = np.asarray(errors, dtype=float)
    inside = np.minimum(errors, trials - 1)
    return np.where(errors >= trials, 1.0, betainccinv(inside + 1, trials - inside, tail))


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
