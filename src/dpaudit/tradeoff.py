r"""Trade-off functions: the smallest false-negative rate at every false-positive rate.

A mechanism is f-DP if no membership inference test with false-positive rate ``alpha`` has a
false-negative rate below ``f(alpha)``.

References:
    Dong, Roth, Su: *Gaussian Differential Privacy* (JRSS-B 2022, arXiv 1905.02383v3).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    r"""The privacy profile of :math:`\mu`-GDP.

    .. math::
        \delta(\epsilon) = \Phi(-\epsilon/\mu + \mu/2)
            - e^\epsilon \Phi(-\epsilon/\mu - \mu/2)

    Dong et al. 2022, Corollary 2.13. Both terms are computed in log space, since
    :math:`e^\epsilon` overflows at large epsilon while the product is tiny.

    Example:
        >>> float(gaussian_delta(1.0, 1.0).round(6))
        0.126937
    """
    epsilon, mu = np.asarray(epsilon, dtype=float), np.asarray(mu, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plus = log_ndtr(-epsilon / mu + mu / 2)
        minus = epsilon + log_ndtr(-epsilon / mu - mu / 2)
        delta = np.exp(plus) * np.abs(np.expm1(np.minimum(minus - plus, 0.0)))  # never -0.0
    nothing = (mu == 0) | np.isneginf(plus)  # below the smallest number
    delta = np.where(nothing, 0.0, np.where(np.isinf(mu), 1.0, delta))
    return np.asarray(np.where(np.isinf(epsilon), 0.0, delta))


def gaussian_epsilon(delta: float, mu: float) -> float:
    r"""Smallest epsilon for which :math:`\mu`-GDP implies (epsilon, delta)-DP.

    Infinite where delta is 0 and mu is not. Never negative.

    Example:
        >>> round(gaussian_epsilon(1e-5, 250**0.5 / 4), 6)
        23.995359
    """
    delta, mu = _validate.delta(delta), float(mu)
    if mu <= 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        here = float(gaussian_delta(epsilon, mu))
        return math.inf if here == 0 else target - math.log(here)

    return sign_change(excess, 0.0, mu * mu / 2 + mu)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    r"""Largest mu for which :math:`\mu`-GDP implies (epsilon, delta)-DP; inverse of the above.

    Example:
        >>> round(gaussian_mu(gaussian_epsilon(1e-5, 2.5), 1e-5), 9)
        2.5
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0, 1)
    return sign_change(lambda mu: float(gaussian_delta(epsilon, mu)) - delta, 0.0, 1.0)[0]


def gaussian_tradeoff(alpha: ArrayLike, mu: float) -> Array:
    r"""The Gaussian trade-off function :math:`G_\mu(\alpha) = \Phi(\Phi^{-1}(1-\alpha) - \mu)`.

    Example:
        >>> float((1 - gaussian_tradeoff(0.1, 1.0)).round(5))
        0.38914
    """
    return np.asarray(ndtr(-ndtri(np.asarray(alpha, dtype=float)) - mu))


def mu_of_errors(false_positive_rate: ArrayLike, false_negative_rate: ArrayLike) -> Array:
    r"""The mu whose Gaussian trade-off curve passes through one pair of error rates.

    :math:`\mu = \Phi^{-1}(1-\alpha) - \Phi^{-1}(\beta)`; negative if the test is worse than a coin.
    """
    alpha = np.asarray(false_positive_rate, dtype=float)
    beta = np.asarray(false_negative_rate, dtype=float)
    return np.asarray(-ndtri(alpha) - ndtri(beta))


def kinks_of(epsilon: ArrayLike, delta: ArrayLike) -> tuple[float, ...]:
    """False-positive rates at which the function of `approximate_tradeoff` has a kink.

    Example:
        >>> [round(kink, 4) for kink in kinks_of([0.0, 1.0], [0.2, 0.0])]
        [0.1164, 0.6836]
    """
    pairs = zip(np.atleast_1d(epsilon).tolist(), np.atleast_1d(delta).tolist(), strict=True)
    # Lines with slope -growth; the upper envelope is walked from the steepest to the flattest.
    lines = {(math.exp(min(e, 700.0)), 1 - d) for e, d in pairs}
    lines |= {(1 / growth, height / growth) for growth, height in lines} | {(0.0, 0.0)}
    kinks: list[float] = []
    hull: list[tuple[float, float]] = []
    for growth, height in sorted(lines, key=lambda line: (-line[0], line[1])):
        if hull and hull[-1][0] == growth:
            hull.pop()
            kinks = kinks[: max(len(hull) - 1, 0)]
        while hull:
            meeting = (hull[-1][1] - height) / (hull[-1][0] - growth)
            if not kinks or meeting > kinks[-1]:
                kinks.append(meeting)
                break
            kinks.pop()
            hull.pop()
        hull.append((growth, height))
    return tuple(kink for kink in kinks if 0 < kink < 1)


def approximate_tradeoff(alpha: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> Array:
    r"""The trade-off function of (epsilon, delta)-DP, the largest over several such pairs.

    :math:`f(\alpha) = \max\{0, 1-\delta-e^\epsilon\alpha, e^{-\epsilon}(1-\delta-\alpha)\}`,
    Dong et al. 2022, Proposition 2.5. With arrays the mechanism satisfies all pairs together.
    """
    alpha = np.asarray(alpha, dtype=float)[..., None]
    epsilon = np.atleast_1d(np.asarray(epsilon, dtype=float))
    delta = np.atleast_1d(np.asarray(delta, dtype=float))
    with np.errstate(over="ignore", invalid="ignore"):
        # alpha * e^eps is 0 * inf where alpha = 0 and epsilon is huge; the product is 0 there.
        steep = 1 - delta - np.where(alpha == 0, 0.0, np.exp(epsilon) * alpha)
        flat = np.exp(-epsilon) * (1 - delta - alpha)
    return np.asarray(np.maximum(0.0, np.maximum(steep, flat)).max(axis=-1))
