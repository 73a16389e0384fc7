"""Test of normality of scores with and without the canary."""

from __future__ import annotations

import math

import numpy as np

from dpaudit._arrays import Array

FEWEST_TO_CHECK = 20


def unit_of(*samples: Array) -> float:
    """A power of two near the largest finite score: dividing by it is exact and cannot overflow."""
    largest = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in samples)
    # Within 2**1000, so that neither the unit nor its inverse leaves the range of floats.
    return 1.0 if largest == 0 else 2.0 ** min(max(np.floor(np.log2(largest)), -1000.0), 1000.0)


def normality_p_value(inserted: Array, not_inserted: Array) -> float | None:
    """D'Agostino-Pearson test of both samples together, each centred and scaled by itself.

    `None` if there are too few scores to test, or if they are not finite.
    """
    samples = (inserted, not_inserted)
    if min(map(len, samples)) < FEWEST_TO_CHECK or not all(np.isfinite(x).all() for x in samples):
        return None
    unit = unit_of(*samples)
    samples = (inserted / unit, not_inserted / unit)
    residuals = [(x - x.mean()) / x.std(ddof=1) for x in samples if x.std(ddof=1) > 0]
    return _dagostino_pearson(np.concatenate(residuals)) if residuals else None


def _dagostino_pearson(x: Array) -> float:
    """The p-value of `scipy.stats.normaltest`, without the half second that its import takes.

    Paper: D'Agostino, Belanger, D'Agostino Jr. (The American Statistician, 1990).
    """
    n = len(x)
    centred = x - x.mean()
    variance = (centred**2).mean()
    skewness = (centred**3).mean() / variance**1.5
    kurtosis = (centred**4).mean() / variance**2

    y = skewness * math.sqrt((n + 1) * (n + 3) / (6 * (n - 2)))
    beta = 3 * (n**2 + 27 * n - 70) / ((n + 7) * (n + 9)) * (n + 1) * (n + 3)
    beta /= (n - 2) * (n + 5)
    w = math.sqrt(2 * (beta - 1)) - 1
    of_skewness = math.asinh(y / math.sqrt(2 / (w - 1))) / math.sqrt(0.5 * math.log(w))

    spread = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    z = (kurtosis - 3 * (n - 1) / (n + 1)) / math.sqrt(spread)
    root = 6 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9))
    root *= math.sqrt(6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    a = 6 + 8 / root * (2 / root + math.sqrt(1 + 4 / root**2))
    cubed = (1 - 2 / a) / (1 + z * math.sqrt(2 / (a - 4)))
    of_kurtosis = (1 - 2 / (9 * a) - math.cbrt(cubed)) / math.sqrt(2 / (9 * a))
    return math.exp(-(of_skewness**2 + of_kurtosis**2) / 2)  # chi-square, two degrees of freedom
