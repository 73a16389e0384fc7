"""What a pilot that looks normal predicts about the errors on the rest of the scores.

The best threshold may lie in tails that a pilot hardly sees. A normal fit extends into them. Any
threshold that was chosen without the rest is valid, so a wrong prediction costs tightness only.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtrik, fdtr, fdtrc, ndtr

from dpaudit._arrays import Array, Integers
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.normality import normality_p_value, unit_of

# Of the tests of normality and of equal variances. A fit that is nearly normal still predicts well.
_SIGNIFICANCE = 0.01
_CUTS = 100
# Quantiles of the two counts, combined like a Latin square: five equally likely outcomes.
_QUANTILES = ((0.1, 0.5), (0.3, 0.9), (0.5, 0.3), (0.7, 0.7), (0.9, 0.1))


def foreseen(
    inserted: Array, not_inserted: Array, positives: int, negatives: int
) -> list[ErrorCounts] | None:
    """Equally likely errors on the rest at the same thresholds; `None` if the pilot is not normal.

    Arguments:
        inserted: Pilot scores with the canary.
        not_inserted: Pilot scores without it.
        positives: Number of other scores with the canary.
        negatives: Number of other scores without it.
    """
    p_value = normality_p_value(inserted, not_inserted)
    if p_value is None or p_value < _SIGNIFICANCE:
        return None
    unit = unit_of(inserted, not_inserted)
    inserted, not_inserted = inserted / unit, not_inserted / unit
    spread_in, spread_out = _spreads(inserted, not_inserted)
    if not (0 < spread_in < np.inf and 0 < spread_out < np.inf):
        return None
    mean_in, mean_out = float(inserted.mean()), float(not_inserted.mean())
    lowest = min(mean_in - 5 * spread_in, mean_out)
    cuts = np.linspace(lowest, max(mean_out + 5 * spread_out, mean_in), _CUTS)
    false_positive_rate = ndtr((mean_out - cuts) / spread_out)
    false_negative_rate = ndtr((cuts - mean_in) / spread_in)
    return [
        ErrorCounts(
            false_positives=_quantile(first, negatives, false_positive_rate),
            false_negatives=_quantile(second, positives, false_negative_rate),
            negatives=negatives,
            positives=positives,
            thresholds=cuts * unit,
        )
        for first, second in _QUANTILES
    ]


def _spreads(inserted: Array, not_inserted: Array) -> tuple[float, float]:
    """Standard deviations; their common value where an F-test does not tell them apart."""
    variances = float(inserted.var(ddof=1)), float(not_inserted.var(ddof=1))
    degrees = len(inserted) - 1, len(not_inserted) - 1
    if min(variances) > 0:
        ratio = variances[0] / variances[1]
        if 2 * min(fdtr(*degrees, ratio), fdtrc(*degrees, ratio)) > _SIGNIFICANCE:
            pooled = float(np.average(variances, weights=degrees))
            variances = pooled, pooled
    return float(np.sqrt(variances[0])), float(np.sqrt(variances[1]))


def _quantile(level: float, trials: int, rates: Array) -> Integers:
    """Quantile of a binomial at each rate."""
    counts = np.nan_to_num(bdtrik(level, trials, rates))  # NaN at a rate of 0
    return np.asarray(np.clip(np.ceil(counts), 0, trials), dtype=np.int64)
