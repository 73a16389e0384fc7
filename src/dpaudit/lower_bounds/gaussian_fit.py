r"""mu from the means and the common variance of the scores: far fewer runs, one more assumption.

If the scores are normal with one variance in both worlds, the mechanism seen through the score is
exactly :math:`\mu`-GDP with :math:`\mu = (m_1 - m_0)/s`, and Student's t statistic of the two
samples has a noncentral t distribution with noncentrality :math:`\mu\sqrt{n_0 n_1/(n_0+n_1)}`. That
gives an exact confidence bound on mu from a few dozen runs, where counting errors needs thousands.

References:
    Johnson, Welch: *Applications of the non-central t-distribution* (1940).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtr, fdtrc, nctdtr, nctdtrinc

from dpaudit.errors import InvalidScores, NumericalError
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF

Array = NDArray[np.float64]

ASSUMPTIONS = (
    GAUSSIAN_TRADE_OFF,
    "scores are normal with the same variance in both worlds",
)

# A check that rejects good scores once in a thousand audits is seldom wrong and still sees
# a non-normal shape as soon as it matters.
REJECT_BELOW = 1e-3
FEWEST_TO_CHECK = 20


@final
@dataclass(frozen=True, kw_only=True)
class GaussianFit:
    """A lower confidence bound on mu and how well the scores fit its assumption."""

    mu: float
    estimate: float
    normality_p_value: float | None
    equal_variance_p_value: float | None

    @property
    def rejected(self) -> tuple[str, ...]:
        """Which parts of the assumption the scores contradict, in words; empty when none."""
        reasons = []
        if self.normality_p_value is not None and self.normality_p_value < REJECT_BELOW:
            reasons.append(f"the scores are not normal (p = {self.normality_p_value:.1e})")
        if self.equal_variance_p_value is not None and self.equal_variance_p_value < REJECT_BELOW:
            reasons.append(f"the two variances differ (p = {self.equal_variance_p_value:.1e})")
        return tuple(reasons)


def fit_gaussian(inserted: Array, not_inserted: Array, *, significance: float) -> GaussianFit:
    """Fit two normal distributions of one variance and bound mu from below.

    Example:
        >>> random = np.random.default_rng(0)
        >>> ones, zeros = random.normal(2, 1, 100), random.normal(0, 1, 100)
        >>> fit = fit_gaussian(ones, zeros, significance=0.05)
        >>> bool(fit.mu < 2 < fit.estimate + 0.5)
        True
    """
    n1, n0 = len(inserted), len(not_inserted)
    if n1 < 2 or n0 < 2:
        raise InvalidScores(
            f"gaussian-fit needs at least 2 scores of each kind, got {n1} inserted and {n0} not"
        )
    if not (np.isfinite(inserted).all() and np.isfinite(not_inserted).all()):
        raise InvalidScores(
            "gaussian-fit needs finite scores, and some are infinite; use clopper-pearson"
        )
    freedom = n1 + n0 - 2
    variances = float(np.var(inserted, ddof=1)), float(np.var(not_inserted, ddof=1))
    pooled = ((n1 - 1) * variances[0] + (n0 - 1) * variances[1]) / freedom
    gap = float(np.mean(inserted) - np.mean(not_inserted))
    if pooled <= 0:
        raise InvalidScores(
            "gaussian-fit needs scores that vary within each world, and these do not; "
            "use clopper-pearson"
        )
    scale = float(np.sqrt(n1 * n0 / (n1 + n0)))
    estimate = float(gap / np.sqrt(pooled))
    mu = noncentrality_lower_bound(estimate * scale, freedom, significance) / scale
    return GaussianFit(
        mu=max(0.0, mu),
        estimate=estimate,
        normality_p_value=_normality(inserted, not_inserted),
        equal_variance_p_value=_equal_variance(variances, (n1 - 1, n0 - 1)),
    )


def chance_of_looking_closer(inserted: Array, not_inserted: Array, mu: float) -> float:
    """The probability that normal scores ``mu`` apart look no further apart than these."""
    n1, n0 = len(inserted), len(not_inserted)
    fit = fit_gaussian(inserted, not_inserted, significance=0.5)
    scale = float(np.sqrt(n1 * n0 / (n1 + n0)))
    return float(nctdtr(n1 + n0 - 2, mu * scale, fit.estimate * scale))


def noncentrality_lower_bound(t: float, freedom: int, significance: float) -> float:
    """The noncentrality under which a statistic of ``t`` or more has probability significance."""
    bound = float(nctdtrinc(freedom, 1 - significance, t))
    if not np.isfinite(bound):
        raise NumericalError(
            f"the noncentral t distribution could not be inverted at t = {t:g} with {freedom} "
            "degrees of freedom; use gaussian-dp"
        )
    return bound


def _normality(inserted: Array, not_inserted: Array) -> float | None:
    """D'Agostino-Pearson test of both samples together, each centred and scaled by itself."""
    if min(len(inserted), len(not_inserted)) < FEWEST_TO_CHECK:
        return None
    from scipy.stats import normaltest  # slow to import, and only this method needs it

    residuals = [
        (x - x.mean()) / x.std(ddof=1) for x in (inserted, not_inserted) if x.std(ddof=1) > 0
    ]
    return float(normaltest(np.concatenate(residuals)).pvalue)


def _equal_variance(variances: tuple[float, float], freedom: tuple[int, int]) -> float | None:
    """Two-sided F test; `None` where there is too little to test."""
    if min(freedom) + 1 < FEWEST_TO_CHECK:
        return None
    if variances[1] == 0:
        return 0.0
    ratio = variances[0] / variances[1]
    tails = fdtr(*freedom, ratio), fdtrc(*freedom, ratio)
    return float(min(1.0, 2 * min(tails)))
