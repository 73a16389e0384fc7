r"""The joint posterior of two error rates, and its probability of satisfying a privacy claim.

With Jeffreys' prior the false-positive rate :math:`\alpha` is
:math:`\mathrm{Beta}(FP + 1/2, TN + 1/2)` and the false-negative rate :math:`\beta` is
:math:`\mathrm{Beta}(FN + 1/2, TP + 1/2)`, independent. The test satisfies the claim (epsilon,
delta) if :math:`\alpha + e^\epsilon\beta \ge 1 - \delta` and
:math:`e^\epsilon\alpha + \beta \ge 1 - \delta`. The boundary is two straight lines that meet at
the corner :math:`\alpha = \beta = c = (1-\delta)/(1+e^\epsilon)`, so

.. math::
    P(\text{kept}) = \bar F_\alpha(c) \bar F_\beta(c) + K(\alpha, \beta) + K(\beta, \alpha), \qquad
    K(x, y) = \int_c^1 f_x(t) \{F_y(c) - F_y(e^{-\epsilon}(1-\delta-t)^+)\} dt.

Each integral runs along the flat side of the boundary, where the integrand is smoothest.

References:
    Zanella-Béguelin et al.: *Bayesian Estimation of Differential Privacy* (ICML 2023,
    arXiv 2206.05199), the joint model of both rates. The quadrature is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, betaln

from dpaudit._arrays import Array

# Posterior mass that the quadrature may leave out at either end of a distribution.
_NEGLIGIBLE = 1e-13

# Gauss-Legendre nodes on [0, 1]. The window spans at most some fifteen standard deviations; 48
# nodes leave an error below 1e-9, checked against a dense twin in the tests.
_NODES, _WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(48))
_NODES = _NODES + 0.5


@final
@dataclass(frozen=True, kw_only=True)
class RatePosterior:
    """Beta posteriors of one error rate, one for each threshold.

    Arguments:
        errors: Number of errors plus 1/2.
        successes: Number of correct decisions plus 1/2.
        low: A quantile below which the mass is negligible.
        high: A quantile above which the mass is negligible.
        log_beta: Logarithm of the normalising constant.
    """

    errors: Array
    successes: Array
    low: Array
    high: Array
    log_beta: Array

    @classmethod
    def from_counts(cls, errors: Array, successes: Array) -> RatePosterior:
        """The posterior under Jeffreys' prior after so many errors and correct decisions."""
        a, b = errors + 0.5, successes + 0.5
        return cls(
            errors=a,
            successes=b,
            low=betaincinv(a, b, _NEGLIGIBLE),
            high=1 - betaincinv(b, a, _NEGLIGIBLE),
            log_beta=betaln(a, b),
        )

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> RatePosterior:
        """The posteriors of some of the thresholds."""
        return RatePosterior(
            errors=self.errors[index],
            successes=self.successes[index],
            low=self.low[index],
            high=self.high[index],
            log_beta=self.log_beta[index],
        )

    def below(self, rate: Array) -> Array:
        """Probability that the error rate is below ``rate``."""
        return np.asarray(betainc(self.errors, self.successes, rate))

    def above(self, rate: Array) -> Array:
        """Probability that the error rate is above ``rate``."""
        # scipy's betaincc takes ten times as long, for digits that do not matter here.
        return 1 - self.below(rate)


def kept_probability(
    alpha: RatePosterior, beta: RatePosterior, epsilon: Array, delta: Array
) -> tuple[Array, Array, Array]:
    """Probability that the claim is satisfied, and its derivatives in epsilon and delta."""
    corner = (1 - delta) / (1 + np.exp(epsilon))
    first, first_epsilon, first_delta = _beyond_corner(alpha, beta, epsilon, delta, corner)
    second, second_epsilon, second_delta = _beyond_corner(beta, alpha, epsilon, delta, corner)
    probability = alpha.above(corner) * beta.above(corner) + first + second
    return probability, first_epsilon + second_epsilon, first_delta + second_delta


def _beyond_corner(
    x: RatePosterior, y: RatePosterior, epsilon: Array, delta: Array, corner: Array
) -> tuple[Array, Array, Array]:
    """K(x, y) of the module's formula and its two derivatives.

    The integrand varies only where both the density of x and the distribution function of y do.
    Beyond that window it vanishes on one side and is F_y(c) f_x on the other, whose integral is
    known. So the window is never much wider than the narrower of the two distributions, and a
    fixed number of nodes is enough for 1 sample beside 1,000,000.
    """
    y_corner = y.below(corner)
    growth = np.exp(epsilon)
    flat_from = np.clip(1 - delta - growth * y.low, corner, 1.0)
    integral = y_corner * x.above(flat_from)
    by_epsilon, by_delta = np.zeros_like(integral), np.zeros_like(integral)
    start = np.maximum(np.maximum(corner, 1 - delta - growth * y.high), x.low)
    end = np.minimum(flat_from, x.high)
    active = (end > start) & (y_corner > 0)
    if not active.any():
        return integral, by_epsilon, by_delta

    x, y = x.at(active), y.at(active)
    # With t = sin^2(angle) the density sin^(2 FP) cos^(2 TN) is smooth even for 0 errors, and all
    # posteriors of n samples are about 1/(2 sqrt n) wide.
    left, right = np.arcsin(np.sqrt(start[active])), np.arcsin(np.sqrt(end[active]))
    width = (right - left)[:, None]
    # F_y has a square root at 0, which y may reach at the right end: nodes quadratic from there.
    angle = right[:, None] - width * _NODES**2
    t, rest = np.sin(angle) ** 2, np.cos(angle) ** 2
    a, b = x.errors[:, None], x.successes[:, None]
    density = np.exp((a - 0.5) * np.log(t) + (b - 0.5) * np.log(rest) - x.log_beta[:, None])
    mass = density * (4 * width * _NODES * _WEIGHTS)

    gap = np.maximum(rest - delta[active, None], np.finfo(float).tiny)
    line = np.exp(-epsilon[active, None]) * gap
    a, b = y.errors[:, None], y.successes[:, None]
    integral[active] += (mass * (y_corner[active, None] - betainc(a, b, line))).sum(axis=1)
    # d F_y(line): the boundary moves by -line for each unit of epsilon, by -line/gap of delta.
    motion = mass * np.exp(a * np.log(line) + (b - 1) * np.log1p(-line) - y.log_beta[:, None])
    by_epsilon[active] = motion.sum(axis=1)
    by_delta[active] = (motion / gap).sum(axis=1)
    return integral, by_epsilon, by_delta
