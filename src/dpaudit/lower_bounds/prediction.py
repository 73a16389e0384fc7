r"""The bound to expect from an audit, before anything is trained.

If the other gradients leave the effect of the canary unchanged, the model moves by
:math:`\eta C/B` at each of :math:`n` insertions, against noise of :math:`\eta \sigma C/B` at each
of :math:`T` steps. Scores with and without the canary are then normal, and
:math:`\mu = n / (\sigma\sqrt T)` apart.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit.curves import gaussian_epsilon
from dpaudit.lower_bounds.estimating import estimate
from dpaudit.lower_bounds.selection import Pilot
from dpaudit.privacy import Bound
from dpaudit.scores.table import Scores

MOST_SCORES = 1_000_000
"""Largest number of scores that `scores_needed` considers and `expected_bound` computes with."""


def predicted_mu(
    *, noise_multiplier: float, steps: int, insertions: int, sampling_rate: float | None = None
) -> float:
    r"""Distance between scores with and without the canary, in standard deviations.

    Under Poisson sampling the canary is used in :math:`q n` steps on average, and the variance of
    that number adds to the noise of runs with the canary; we take the average of both variances.

    Paper: the appendix of Cebere, Bellet, Papernot (ICLR 2025) has the accountant's
    :math:`\sqrt n/\sigma` for known insertion steps; the two agree where every step is one.

    Arguments:
        noise_multiplier: :math:`\sigma`; at 0 the distance is infinite.
        steps: :math:`T`.
        insertions: :math:`n`.
        sampling_rate: :math:`q`, `None` without sampling.

    Example:
        >>> [round(predicted_mu(noise_multiplier=4.0, steps=250 * k, insertions=250), 3)
        ...  for k in (1, 5, 25)]
        [3.953, 1.768, 0.791]
    """
    _validate.non_negative("noise_multiplier", noise_multiplier)
    rate = 1.0 if sampling_rate is None else sampling_rate
    variance = noise_multiplier**2 * steps + insertions * rate * (1 - rate) / 2
    return math.inf if variance == 0 else rate * insertions / math.sqrt(variance)


def expected_bound(
    mu: float, *, scores: int, delta: float, confidence: float = 0.95, method: str = "gaussian-dp"
) -> Bound:
    """The lower bound from scores at the quantiles of two normal distributions, ``mu`` apart.

    For more than a million scores it is extrapolated: what a bound on mu lacks shrinks with the
    square root of their number. Bounds of other methods hardly change any more.

    Example:
        >>> bound = expected_bound(3.953, scores=5000, delta=1e-5)
        >>> 21 < bound.epsilon < 23.995
        True
    """
    if scores <= MOST_SCORES:
        return _expected(mu, scores, delta, confidence, method)
    largest = _expected(mu, MOST_SCORES, delta, confidence, method)
    if largest.mu is None:
        return largest
    reached = mu - (mu - largest.mu) * math.sqrt(MOST_SCORES / scores)
    return replace(
        largest,
        mu=reached,
        epsilon=gaussian_epsilon(delta, reached),
        sample_size=scores,
        details={},
    )


@lru_cache(maxsize=1024)  # a page asks for dozens, again and again for the same audit
def _expected(mu: float, scores: int, delta: float, confidence: float, method: str) -> Bound:
    half = max(2, scores // 2)
    quantiles = ndtri((np.arange(half) + 0.5) / half)
    evidence = Scores.from_samples(quantiles + min(mu, 1e3), quantiles)
    rule = Pilot(evenly=True)  # so that no chance is involved
    return estimate(evidence, delta=delta, confidence=confidence, method=method, threshold=rule)


def scores_needed(mu: float, *, share: float, delta: float, confidence: float = 0.95) -> int | None:
    """Number of scores, to a tenth, with which gaussian-dp proves ``share`` of mu-GDP's epsilon.

    `None` if a million are not enough.

    Example:
        >>> scores_needed(3.953, share=0.8, delta=1e-5)
        414
    """
    _validate.between("share", share, 0, 1)
    target = share * gaussian_epsilon(delta, mu)
    if math.isinf(target):
        return None
    grid = [20]
    while grid[-1] <= MOST_SCORES:
        grid.append(2 * math.ceil(grid[-1] * 1.1 / 2))

    def proven(scores: int) -> float:
        return expected_bound(mu, scores=scores, delta=delta, confidence=confidence).epsilon

    place = bisect_left(grid[:-1], target, key=proven)
    return grid[place] if place < len(grid) - 1 else None
