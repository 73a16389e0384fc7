r"""Bets against a claim: random variables whose expectation is at most 1 if the claim is true.

A pair is one run with the canary and one without. Fix a threshold before the pair is seen. Let
:math:`Y = 1` if the run without the canary is above it (a false positive, rate :math:`\alpha`) and
:math:`Z = 1` if the run with the canary is not (a false negative, rate :math:`\beta`). The claimed
trade-off function is convex, so if the claim is true every supporting line of it holds:
:math:`p\alpha + r\beta \ge c` with :math:`p, r > 0`. For any point of such a line,
:math:`p a + r b = c`, and any :math:`\lambda \ge 0` that keeps both factors non-negative, the bet
pays

.. math:: e(Y, Z) = \bigl(1 - \lambda p (Y - a)\bigr) \bigl(1 - \lambda r (Z - b)\bigr).

*Proof that* :math:`E[e] \le 1`. The two runs are independent, so :math:`E[e] = (1-u)(1-v)` with
:math:`u = \lambda p(\alpha - a)` and :math:`v = \lambda r(\beta - b)`. Both factors are
expectations of non-negative numbers, and :math:`u + v = \lambda(p\alpha + r\beta - c) \ge 0`; so
by the inequality of the means :math:`(1-u)(1-v) \le (1 - (u+v)/2)^2 \le 1`. ∎

Where :math:`(a, b)` is the point of the curve nearest, in Kullback-Leibler divergence, to the true
error rates, the best :math:`\lambda` makes :math:`e` their likelihood ratio. Nothing is lost then
against a likelihood-ratio test of the thresholded scores with known rates.

References:
    Waudby-Smith, Ramdas: *Estimating means of bounded random variables by betting* (JRSS-B 2024).
    Grünwald, de Heide, Koolen: *Safe testing* (JRSS-B 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import expit, ndtr

from dpaudit._arrays import Array
from dpaudit.claims.claim import Claim
from dpaudit.curves import gaussian_delta

LINES = 31
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
"""Stakes, as shares of the largest possible lambda. The largest one could lose everything."""


@final
@dataclass(frozen=True, kw_only=True)
class Lines:
    """Supporting lines of a claimed trade-off function, each with a point on it.

    Arguments:
        p: Weight of the false-positive rate.
        r: Weight of the false-negative rate; ``p + r = 1``.
        c: Smallest value of ``p alpha + r beta`` that the claim allows.
        a: False-positive rate of the point.
        b: False-negative rate of the point: ``p a + r b = c``.
    """

    p: Array
    r: Array
    c: Array
    a: Array
    b: Array


def supporting_lines(claim: Claim, count: int = LINES) -> Lines:
    """Lines that the claimed trade-off function is nowhere below, with slopes from flat to steep.

    A claimed (epsilon, delta) is the line of slope :math:`e^\\epsilon` and its mirror image. Lines
    between two claimed ones are averages of them, which the claim implies.

    Example:
        >>> lines = supporting_lines(Claim.from_mu(1.0), 3)
        >>> lines.b.round(3), lines.c.round(3)
        (array([0.   , 0.309, 0.999]), array([0.029, 0.309, 0.029]))
    """
    if claim.mu is not None:
        reach = min(claim.largest_epsilon or math.inf, claim.mu * (claim.mu / 2 + 3), 30.0)
        epsilon = np.linspace(-reach, reach, count)
        p, r = expit(epsilon), expit(-epsilon)
        c = np.minimum(p, r) * (1 - gaussian_delta(np.abs(epsilon), claim.mu))
        with np.errstate(invalid="ignore", divide="ignore"):
            a = ndtr(-epsilon / claim.mu - claim.mu / 2) if claim.mu > 0 else np.full(count, 0.5)
    else:
        claimed, deltas = np.array(claim.epsilons), np.array(claim.deltas)
        steep = expit(claimed)
        offset = expit(-claimed) * (1 - deltas)
        known_p = np.concatenate([[0.0], steep, 1 - steep, [1.0]])
        known_c = np.concatenate([[0.0], offset, offset, [0.0]])
        # Of several lines with one slope only the highest matters.
        order = np.lexsort((-known_c, known_p))
        known_p, first = np.unique(known_p[order], return_index=True)
        reach = min(float(claimed.max()), 30.0)
        p = expit(np.linspace(-reach, reach, count))
        r, c = 1 - p, np.interp(p, known_p, known_c[order][first])
        a = _touching(claim, p, r)
    b = (c - p * a) / r
    kept = (b > 0) & (b < 1) & (a > 0) & (a < 1)
    return Lines(p=p[kept], r=r[kept], c=c[kept], a=a[kept], b=b[kept])


def _touching(claim: Claim, p: Array, r: Array) -> Array:
    """False-positive rate at which each line touches the curve; the middle of a whole segment.

    Any point of the line is valid; the touching point gives the largest gains.
    """
    rates = ndtr(np.linspace(-8, 8, 1601))
    height = p[:, None] * rates + r[:, None] * claim.tradeoff(rates)
    lowest = height <= height.min(axis=1, keepdims=True) * (1 + 1e-9)
    first, last = lowest.argmax(axis=1), lowest.shape[1] - 1 - lowest[:, ::-1].argmax(axis=1)
    return np.asarray((rates[first] + rates[last]) / 2)


@final
@dataclass(frozen=True, kw_only=True)
class Bets:
    """Logarithms of what each bet pays, for each outcome of one run of a pair.

    Arguments:
        payoff: Shape (lines, shares, 4): for a run without the canary that is not above the
            threshold, and one that is; for a run with the canary that is above it, and one that
            is not.
    """

    payoff: Array

    @classmethod
    def against(cls, claim: Claim) -> Bets:
        """Every supporting line of the claim with every share of the largest stake."""
        lines = supporting_lines(claim)
        with np.errstate(divide="ignore"):
            most = np.minimum(1 / (lines.p * (1 - lines.a)), 1 / (lines.r * (1 - lines.b)))
        stake = most[:, None] * np.array(SHARES)
        p, r, a, b = (value[:, None] for value in (lines.p, lines.r, lines.a, lines.b))
        payoff = np.stack(
            [
                np.log1p(stake * p * a),
                np.log1p(-stake * p * (1 - a)),
                np.log1p(stake * r * b),
                np.log1p(-stake * r * (1 - b)),
            ],
            axis=-1,
        )
        return cls(payoff=payoff)
