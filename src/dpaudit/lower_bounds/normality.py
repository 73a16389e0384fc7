"""Test of normality of scores with and without the canary."""

from __future__ import annotations

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
    from scipy.stats import normaltest  # slow to import, and few methods need it

    residuals = [(x - x.mean()) / x.std(ddof=1) for x in samples if x.std(ddof=1) > 0]
    return float(normaltest(np.concatenate(residuals)).pvalue) if residuals else None
