r"""Bayesian lower bounds on epsilon from error counts, with Jeffreys' prior.

Both error rates get Jeffreys' prior, Beta(1/2, 1/2). ``jeffreys`` bounds each rate by a
quantile of its own posterior and combines the two limits; ``joint-beta`` uses the posterior of
epsilon itself, a function of both rates, and is tighter.

These are *credible* bounds: the stated probability is over the prior, not over repetitions of
the audit. Their error rate over audits exceeds the stated one. Over all counts (sampled at the
largest sizes) of 20 to 2,500 a side at 95 %, and many pairs of error rates, false claims
reached 13 % for ``jeffreys`` (few errors on both sides). For ``joint-beta`` they are 5 % where one
direction decides, 10-12 % for randomised response at epsilon 1, and reach 27 % where both error
rates are small and alike: there epsilon is the larger of two equal numbers, and the posterior of a
maximum lies above it.

A test that is worse than chance also shows a leak, if its decisions are reversed. If the reversed
test counts, as in the paper, the posterior of epsilon has no mass at 0, and its lower quantile is
above 0 even without any leak: always a false claim. The lower bounds here therefore use only the
test "a high score means inserted".

**The joint posterior.** With Jeffreys' prior the false-positive rate :math:`\alpha` is
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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root
from scipy.special import betainc, betaincinv, betaln, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array, broadcast_counts
from dpaudit.curves import pairs_family
from dpaudit.privacy import Question

# Thresholds in one block; limits memory to about 50 MB.
_BLOCK = 4096

# Posterior mass that the quadrature may leave out at either end of a distribution.
_NEGLIGIBLE = 1e-13

# No error rate has a low quantile below e to the minus this, in as many as 1e15 scores.
_HIGHEST = 150.0

# Gauss-Legendre nodes on [0, 1]. The window spans at most some fifteen standard deviations; 48
# nodes leave an error below 1e-9, checked against a dense twin in the tests.
_NODES, _WEIGHTS = (0.5 * v for v in np.polynomial.legendre.leggauss(48))
_NODES = _NODES + 0.5


class RatePosterior(NamedTuple):
    """Beta posteriors of one error rate, one for each threshold; beyond low and high lies nothing.

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
    def from_counts(cls, errors: Array, trials: Array) -> RatePosterior:
        """The posterior under Jeffreys' prior."""
        a, b = errors + 0.5, trials - errors + 0.5
        ends = betaincinv(a, b, _NEGLIGIBLE), 1 - betaincinv(b, a, _NEGLIGIBLE)
        return cls(a, b, *ends, betaln(a, b))

    def at(self, index: Any) -> RatePosterior:
        """The posteriors of some of the thresholds."""
        return RatePosterior(*(field[index] for field in self))

    def below(self, rate: Array) -> Array:
        """Probability that the error rate is below ``rate``."""
        return np.asarray(betainc(self.errors, self.successes, rate))

    def above(self, rate: Array) -> Array:
        """Probability that the error rate is above ``rate``."""
        # scipy's betaincc takes ten times as long, for digits that do not matter here.
        return 1 - self.below(rate)


Kept = Callable[[RatePosterior, RatePosterior, Array, Array], Array]


def jeffreys(*counts: ArrayLike, question: Question, significance: float) -> Array:
    r"""Lower bound on epsilon or delta from Jeffreys upper bounds on both error rates.

    Half of ``significance`` goes to each rate, then
    :math:`\epsilon \ge \log\frac{1-\delta-\beta}{\alpha}` and
    :math:`\epsilon \ge \log\frac{1-\delta-\alpha}{\beta}`.

    See also: :func:`joint_beta`, tighter; Clopper-Pearson, with guaranteed coverage.

    The counts are false positives, false negatives, negatives and positives, one per threshold. A
    bound is at least 0 and finite, and 0 where a class is empty.

    Example:
        >>> counts = (20, 10, 500, 500)
        >>> round(float(jeffreys(*counts, question=Question(delta=1e-5), significance=0.05)), 6)
        3.285296
        >>> round(float(jeffreys(*counts, question=Question(epsilon=1.0), significance=0.05)), 4)
        0.8444
    """
    tail = _validate.between("significance", significance, 0, 1) / 2
    fp, fn, n, p = broadcast_counts(*counts)
    # One minus the lower quantile of the success rate keeps its digits for tiny tails. Where
    # every decision was wrong the interval reaches 1, or its coverage would sink to 0 there.
    alpha = np.where(fp == n, 1.0, 1 - betaincinv(n - fp + 0.5, fp + 0.5, tail))
    beta = np.where(fn == p, 1.0, 1 - betaincinv(p - fn + 0.5, fn + 0.5, tail))
    return np.where((n > 0) & (p > 0), pairs_family(question).through(alpha, beta), 0.0)


def joint_beta(*counts: ArrayLike, question: Question, significance: float) -> Array:
    r"""Lower quantile of the posterior of epsilon, or of delta.

    Epsilon is a function of both error rates, so it has a posterior:
    :math:`P(\epsilon \le e)` is the mass of the pairs of rates that keep (e, delta). The bound is
    the e where this is ``significance``; the same holds for delta. Accurate to 1e-7 for
    significance of 1e-8 or more; the public implementation stops its search at 1e-2 and gives
    3.4072 for the example below.

    Arguments and results are those of :func:`jeffreys`.

    Example:
        >>> counts = (20, 10, 500, 500)
        >>> round(float(joint_beta(*counts, question=Question(delta=1e-5), significance=0.05)), 4)
        3.4055
        >>> round(float(joint_beta(*counts, question=Question(epsilon=1.0), significance=0.05)), 4)
        0.8685
    """
    level = _validate.between("significance", significance, 0, 1)
    return quantiles(broadcast_counts(*counts), question, level, kept_probability)


def quantiles(
    counts: tuple[Array, Array, Array, Array], question: Question, level: float, kept_by: Kept
) -> Array:
    """Quantiles of the posterior of epsilon or delta, one for each threshold.

    ``kept_by`` is the probability that the rates keep a claim (epsilon, delta).
    """
    fp, fn, n, p = (v.ravel() for v in counts)
    result = np.zeros_like(fp)
    nonempty = np.flatnonzero((n > 0) & (p > 0))
    for first in range(0, nonempty.size, _BLOCK):
        rows = nonempty[first : first + _BLOCK]
        alpha = RatePosterior.from_counts(fp[rows], n[rows])
        beta = RatePosterior.from_counts(fn[rows], p[rows])
        result[rows] = _quantile(alpha, beta, question, level, kept_by)
    return result.reshape(counts[0].shape)


def _quantile(
    alpha: RatePosterior, beta: RatePosterior, question: Question, level: float, kept_by: Kept
) -> Array:
    """The root in epsilon, or delta, of the probability less the level; 0 where there is none."""

    def excess(parameter: Array, *fields: Array) -> Array:
        if question.delta is None:
            # exp(700) is about the largest float; delta is 0 long before.
            pair = np.full_like(parameter, min(question.epsilon or 0.0, 700.0)), parameter
        else:
            pair = parameter, np.full_like(parameter, question.delta)
        kept = kept_by(RatePosterior(*fields[:5]), RatePosterior(*fields[5:]), *pair)
        # On the scale of normal quantiles a posterior is nearly a straight line.
        return np.asarray(ndtri(np.clip(kept, 1e-300, 1 - 1e-16)) - ndtri(level))

    highest = 1.0 if question.delta is None else _HIGHEST
    result = np.zeros_like(alpha.low)
    rows = excess(result, *alpha, *beta) < 0
    fields = (*alpha.at(rows), *beta.at(rows))
    tolerances = {"xatol": 1e-13, "xrtol": 1e-13}
    result[rows] = find_root(excess, (0.0, highest), args=fields, tolerances=tolerances).x
    return result


def kept_probability(
    alpha: RatePosterior, beta: RatePosterior, epsilon: Array, delta: Array
) -> Array:
    """Probability that the claim is satisfied."""
    corner = (1 - delta) / (1 + np.exp(epsilon))
    return np.asarray(
        alpha.above(corner) * beta.above(corner)
        + _beyond_corner(alpha, beta, epsilon, delta, corner)
        + _beyond_corner(beta, alpha, epsilon, delta, corner)
    )


def _beyond_corner(
    x: RatePosterior, y: RatePosterior, epsilon: Array, delta: Array, corner: Array
) -> Array:
    """K(x, y) of the module's formula.

    The integrand varies only where both the density of x and the distribution function of y do.
    Beyond that window it vanishes on one side and is F_y(c) f_x on the other, whose integral is
    known. So the window is never much wider than the narrower of the two distributions, and a
    fixed number of nodes is enough for 1 sample beside 1,000,000.
    """
    y_corner = y.below(corner)
    growth = np.exp(epsilon)
    flat_from = np.clip(1 - delta - growth * y.low, corner, 1.0)
    integral = y_corner * x.above(flat_from)
    start = np.maximum(np.maximum(corner, 1 - delta - growth * y.high), x.low)
    end = np.minimum(flat_from, x.high)
    active = (end > start) & (y_corner > 0)
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
    varying = y_corner[active, None] - betainc(y.errors[:, None], y.successes[:, None], line)
    integral[active] += (mass * varying).sum(axis=1)
    return np.asarray(integral)
