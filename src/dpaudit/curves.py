r"""Trade-off functions: the smallest false-negative rate at every false-positive rate.

A mechanism is f-DP if no membership inference test with false-positive rate ``alpha`` has a
false-negative rate below ``f(alpha)``. A `Curve` is such a function. A `Family` is a set of curves
that fall as one parameter grows: epsilon at a fixed delta, delta at a fixed epsilon, or mu. A lower
bound is the largest parameter of a family that a test refutes.

References:
    Dong, Roth, Su: *Gaussian Differential Privacy* (JRSS-B 2022, arXiv 1905.02383v3).
    Kairouz, Oh, Viswanath: *The composition theorem for differential privacy* (2015), Theorem 2.1:
    the error rates that (epsilon, delta)-DP allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.privacy import Question


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
    lines = {(math.exp(min(e, 700.0)), 1 - d) for e, d in pairs}
    lines |= {(1 / growth, height / growth) for growth, height in lines} | {(0.0, 0.0)}
    return tuple(kink for kink in corners_of(lines) if 0 < kink < 1)


def corners_of(lines: Iterable[tuple[float, float]]) -> list[float]:
    """Where the largest of the lines ``height - growth * alpha`` changes, in ascending order."""
    corners: list[float] = []
    hull: list[tuple[float, float]] = []  # from the steepest to the flattest
    for growth, height in sorted(lines, key=lambda line: (-line[0], line[1])):
        if hull and hull[-1][0] == growth:
            hull.pop()
            corners = corners[: max(len(hull) - 1, 0)]
        while hull:
            meeting = (hull[-1][1] - height) / (hull[-1][0] - growth)
            if not corners or meeting > corners[-1]:
                corners.append(meeting)
                break
            corners.pop()
            hull.pop()
        hull.append((growth, height))
    return corners


def lower_hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower convex hull of points, from left to right.

    Example:
        >>> lower_hull([(0.0, 1.0), (0.5, 0.6), (0.4, 0.3), (1.0, 0.0)])
        [(0.0, 1.0), (0.4, 0.3), (1.0, 0.0)]
    """
    hull: list[tuple[float, float]] = []
    for x, y in sorted(set(points)):
        while len(hull) >= 2:
            (x0, y0), (x1, y1) = hull[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            hull.pop()
        if not hull or hull[-1][0] < x:  # otherwise a higher point at the same place
            hull.append((x, y))
    return hull


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


def epsilon_of_errors(alpha: Array, beta: Array, delta: float) -> Array:
    """Smallest epsilon at ``delta`` that allows both error rates, both directions; at least 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(1 - delta - beta, 0)) - np.log(alpha)
        back = np.log(np.maximum(1 - delta - alpha, 0)) - np.log(beta)
    return np.asarray(np.maximum(np.nan_to_num(np.maximum(forth, back), nan=0.0), 0.0))


def delta_of_errors(alpha: Array, beta: Array, epsilon: float) -> Array:
    """Smallest delta at ``epsilon`` that allows both error rates, both directions; at least 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(min(epsilon, 700.0))
        forth, back = 1 - beta - growth * alpha, 1 - alpha - growth * beta
    return np.asarray(np.maximum(np.maximum(forth, back), 0.0))


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """One trade-off function.

    Arguments:
        tradeoff: The smallest false-negative rate at each false-positive rate.
        inverse: The smallest false-positive rate at each false-negative rate: the same function
            if the mechanism protects both neighbours alike.
        kinks: False-positive rates at which the function has a kink.
        at_complement: ``tradeoff(1 - x)`` of one number, accurate where x is small; `None` where
            ``tradeoff`` itself must do.
    """

    tradeoff: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    kinks: tuple[float, ...] = ()
    at_complement: Callable[[float], float] | None = None


def gaussian_curve(mu: float) -> Curve:
    """The trade-off function of mu-GDP."""
    tradeoff = partial(gaussian_tradeoff, mu=mu)
    return Curve(
        tradeoff=tradeoff, inverse=tradeoff, at_complement=lambda x: float(ndtr(ndtri(x) - mu))
    )


def approximate_curve(epsilon: float, delta: float) -> Curve:
    """The trade-off function of (epsilon, delta)-DP."""
    growth = math.exp(min(epsilon, 700.0))
    tradeoff = partial(approximate_tradeoff, epsilon=epsilon, delta=delta)
    return Curve(
        tradeoff=tradeoff,
        inverse=tradeoff,
        kinks=((1 - delta) / (1 + growth),),
        at_complement=lambda x: max(0.0, 1 - delta - growth * (1 - x), (x - delta) / growth),
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """Trade-off functions that fall as a parameter grows from 0.

    Arguments:
        curve: The trade-off function of one parameter.
        through: The smallest parameter whose curve allows two error rates; not above 0 if all do.
        answer: The epsilon, or delta, of a mechanism that has the curve of one parameter.
        highest: The largest parameter, whose curve allows everything.
        pairs: What is asked, where the curves are those of (epsilon, delta)-DP.
    """

    curve: Callable[[float], Curve]
    through: Callable[[Array, Array], Array]
    answer: Callable[[float, Question], float]
    highest: float = math.inf
    pairs: Question | None = None


def pairs_family(question: Question) -> Family:
    """(epsilon, delta)-DP; the parameter is the number that is asked for.

    Example:
        >>> family = pairs_family(Question(delta=0.1))
        >>> float(family.through(np.array(0.2), np.array(0.3)).round(4))
        1.0986
    """
    delta, epsilon = question.delta, question.epsilon or 0.0
    if delta is not None:
        return Family(
            curve=lambda parameter: approximate_curve(parameter, delta),
            through=lambda alpha, beta: epsilon_of_errors(alpha, beta, delta),
            answer=lambda parameter, _: parameter,
            pairs=question,
        )
    return Family(
        curve=lambda parameter: approximate_curve(epsilon, parameter),
        through=lambda alpha, beta: delta_of_errors(alpha, beta, epsilon),
        answer=lambda parameter, _: parameter,
        highest=1.0,
        pairs=question,
    )


def _gaussian_answer(mu: float, question: Question) -> float:
    if question.delta is not None:
        return gaussian_epsilon(question.delta, mu)
    return float(gaussian_delta(question.epsilon or 0.0, max(mu, 0.0)))


# At a rate of 1 mu is minus infinity, which never is the largest.
GAUSSIAN = Family(curve=gaussian_curve, through=mu_of_errors, answer=_gaussian_answer)
"""mu-GDP; the parameter is mu.

The epsilon, or delta, at which the curve is read may lie far beyond the error rates that were
observed. If the mechanism's trade-off function is not Gaussian, it is not a lower bound.
"""
