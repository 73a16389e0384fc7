r"""Gaussian DP from the means and the common variance of the scores.

If the scores are normal with the same variance with and without the canary, the mechanism seen
through the score is exactly :math:`\mu`-GDP with :math:`\mu = (m_1 - m_0)/s`, and Student's t
statistic has a noncentral t distribution with noncentrality
:math:`\mu\sqrt{n_0 n_1/(n_0+n_1)}`. This gives an exact confidence bound on mu from a few dozen
runs, where error counts need thousands.

References:
    Johnson, Welch: *Applications of the non-central t-distribution* (1940).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import nctdtr

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.errors import InvalidScores, NumericalError
from dpaudit.lower_bounds.diagnostics import FEWEST_TO_CHECK, normal_p_values, unit_of

# Level of each of the two tests of the assumption, of normality and of equal variances. The first
# is asymptotic: together they refuse 2.5 to 4.8 of a thousand normal audits.
REJECT_BELOW = 1e-3

LARGEST_STATISTIC = 1e4
"""The time of a noncentral t distribution grows with its noncentrality, and it fails beyond 1e6."""


@final
@dataclass(frozen=True, kw_only=True)
class NormalFit:
    """A lower confidence bound on mu, and tests of its assumption on the scores."""

    mu: float
    estimate: float
    normality_p_value: float | None
    equal_variance_p_value: float | None

    @property
    def rejected(self) -> tuple[str, ...]:
        """The parts of the assumption that the scores contradict; empty if there are none."""
        reasons = []
        if self.normality_p_value is not None and self.normality_p_value < REJECT_BELOW:
            reasons.append(f"the scores are not normal (p = {self.normality_p_value:.1e})")
        if self.equal_variance_p_value is not None and self.equal_variance_p_value < REJECT_BELOW:
            reasons.append(f"the two variances differ (p = {self.equal_variance_p_value:.1e})")
        return tuple(reasons)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tests of the assumption say, and why the bound is 0 if it is."""
        if self.rejected:
            return (f"nothing can be claimed: {' and '.join(self.rejected)}",)
        if self.normality_p_value is None:
            tested = f"normality not tested: fewer than {FEWEST_TO_CHECK} scores of a kind"
        else:
            p_value = f"p = {self.normality_p_value:.3g}"
            tested = f"normality not rejected at the level {REJECT_BELOW:g} ({p_value})"
        if self.mu == 0:
            return "nothing can be claimed: the means do not differ beyond chance", tested
        return (tested,)


def fit_gaussian(inserted: Array, not_inserted: Array, *, significance: float) -> NormalFit:
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
    unit = unit_of(inserted, not_inserted)
    inserted, not_inserted = inserted / unit, not_inserted / unit
    freedom = n1 + n0 - 2
    variances = float(np.var(inserted, ddof=1)), float(np.var(not_inserted, ddof=1))
    pooled = ((n1 - 1) * variances[0] + (n0 - 1) * variances[1]) / freedom
    gap = float(np.mean(inserted) - np.mean(not_inserted))
    # Of equal scores the variance is a rounding error, not always zero.
    if pooled <= 0 or np.ptp(inserted) == np.ptp(not_inserted) == 0:
        raise InvalidScores(
            "gaussian-fit needs scores that vary with and without the canary, and these do not; "
            "use clopper-pearson"
        )
    scale = float(np.sqrt(n1 * n0 / (n1 + n0)))
    estimate = float(gap / np.sqrt(pooled))
    mu = noncentrality_lower_bound(estimate * scale, freedom, significance) / scale
    normality, equal_variance = normal_p_values(inserted, not_inserted) or (None, None)
    return NormalFit(
        mu=max(0.0, mu),
        estimate=estimate,
        normality_p_value=normality,
        equal_variance_p_value=equal_variance,
    )


def chance_of_looking_closer(inserted: Array, not_inserted: Array, mu: float) -> float:
    """Probability that normal scores with a shift of ``mu`` look no further apart than these."""
    n1, n0 = len(inserted), len(not_inserted)
    fit = fit_gaussian(inserted, not_inserted, significance=0.5)
    scale = float(np.sqrt(n1 * n0 / (n1 + n0)))
    return float(nctdtr(n1 + n0 - 2, mu * scale, fit.estimate * scale))


def noncentrality_lower_bound(t: float, freedom: int, significance: float) -> float:
    """The noncentrality under which a statistic of ``t`` or more has probability significance.

    0 if it is negative. A statistic of ``t`` or more is computed as one of ``-t`` or less, which
    keeps its digits however small the probability is; scipy's own inverse does not. A larger
    statistic than `LARGEST_STATISTIC` is taken to be that one, which gives a smaller bound.

    Example:
        >>> round(noncentrality_lower_bound(20.5, 399, 1e-12), 6)
        11.869163
    """

    t = min(t, LARGEST_STATISTIC)

    def excess(noncentrality: float) -> float:
        return float(nctdtr(freedom, -noncentrality, -t)) - significance

    if excess(0.0) >= 0:
        return 0.0
    bound, above = sign_change(excess, 0.0, t)
    if not np.isfinite(excess(above)):
        raise NumericalError(
            f"the noncentral t distribution could not be inverted at t = {t:g} with {freedom} "
            "degrees of freedom; use gaussian-dp"
        )
    return bound
