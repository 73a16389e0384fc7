r"""An e-process that watches every step of a live audit, so that missing noise is seen at once.

**Null hypothesis.** Given the past, every step is at least as private, for a record that is added,
as the claimed step: Poisson sampling with rate :math:`q` and Gaussian noise of :math:`\sigma` times
the clip norm. One observation without the canary has the claimed distribution
:math:`Q = N(0, \sigma^2)`, one with it :math:`P = (1-q) N(0, \sigma^2) + q N(1, \sigma^2)`, so
the curve of the claimed step is traced by the tests "above :math:`u`":

.. math:: a(u) = \Phi(-u/\sigma), \qquad
          b(u) = (1-q)\,\Phi(u/\sigma) + q\,\Phi((u-1)/\sigma),

and its tangent at that point has the slope of the likelihood ratio
:math:`\ell(u) = 1 - q + q\, e^{(2u-1)/(2\sigma^2)}`: with :math:`p \propto \ell, r \propto 1`,
:math:`p + r = 1`, every mechanism of the null has
:math:`p\alpha + r\beta \ge p\,a + r\,b` at every threshold.

**Bet.** Of one canary that is not inserted and one that is, let :math:`Y, Z` say whether the first
lies above a threshold :math:`v` and the second does not. By the argument of
`dpaudit.claims.anytime`, :math:`e = (1 - \lambda p (Y - a)) (1 - \lambda r (Z - b))` has
expectation at most 1 under the null for every stake :math:`\lambda \ge 0` that keeps both factors
non-negative, if the two observations are independent given the past.

**E-process.** Each `SUSPICION` is a training whose noise is a fraction of the claimed noise; for
each of them the bet :math:`(u, v, \lambda)` with the largest expected logarithm is chosen
beforehand, and the bets of all pairs and steps are multiplied. The mean over the suspicions is an
e-process: by Ville's inequality it exceeds :math:`1/\alpha` with probability at most
:math:`\alpha`, at any time, under the null.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from scipy.special import ndtr

from dpaudit._arrays import Array

SUSPICIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)
"""Fractions of the claimed noise for which a bet is made."""

_STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_SMALLEST_NOISE = 1e-3  # in place of no noise at all, which has no best threshold


@final
@dataclass(frozen=True, kw_only=True)
class StepBets:
    """For one claimed step: the threshold and the logarithmic payoffs of each suspicion.

    Arguments:
        thresholds: Threshold of each suspicion, in units of the clip norm.
        payoffs: Shape (suspicions, 4): of an observation without the canary that is not above the
            threshold, and one that is; of one with the canary that is above it, and one that is
            not.
    """

    thresholds: Array
    payoffs: Array

    def log_growth(self, without: Array, inserted: Array) -> Array:
        """Logarithm of what each bet pays for equally many observations of both kinds.

        Arguments:
            without: Observations without the canary along the last axis; steps may come before.
            inserted: Observations with it.
        """
        pairs = min(without.shape[-1], inserted.shape[-1])
        false_positives = self._above(without[..., :pairs])
        true_positives = self._above(inserted[..., :pairs])
        counts = [
            pairs - false_positives,
            false_positives,
            true_positives,
            pairs - true_positives,
        ]
        return np.asarray((np.stack(counts, axis=-1) * self.payoffs).sum(axis=-1))

    def _above(self, observations: Array) -> Array:
        """How many lie above each threshold."""
        above = observations[..., None, :] > self.thresholds[:, None]
        # As bytes they are summed five times as fast as counted.
        return np.asarray(above.view(np.uint8).sum(axis=-1, dtype=np.int32))


def evidence_of(log_wealth: Array) -> float:
    """The e-value: the mean of the suspicions' wealth, infinite only beyond floating point.

    Of several steps, whose suspicions are along the last axis, the largest e-value.
    """
    largest = log_wealth.max(axis=-1)
    with np.errstate(over="ignore"):
        values = np.exp(largest) * np.exp(log_wealth - largest[..., None]).mean(axis=-1)
    return float(values.max())


@lru_cache(maxsize=256)
def step_bets(rate: float, noise_multiplier: float) -> StepBets:
    """The best bets against one claimed step.

    Arguments:
        rate: Claimed sampling rate, in (0, 1].
        noise_multiplier: Claimed noise, in units of the clip norm, above 0.

    Example:
        >>> bets = step_bets(1.0, 2.0)
        >>> growth = bets.log_growth(np.zeros(100), np.ones(100))  # no noise at all
        >>> evidence_of(growth) > 1e6
        True
    """
    sigma = noise_multiplier
    # Points of the claimed curve, and the tangent at each.
    u = np.linspace(-4 * sigma, 1 + 4 * sigma, 81)
    a = ndtr(-u / sigma)
    b = (1 - rate) * ndtr(u / sigma) + rate * ndtr((u - 1) / sigma)
    slope = 1 - rate + rate * np.exp(np.minimum((2 * u - 1) / (2 * sigma**2), 500.0))
    p, r = slope / (1 + slope), 1 / (1 + slope)
    with np.errstate(divide="ignore"):
        most = np.minimum(1 / (p * (1 - a)), 1 / (r * (1 - b)))
    stake = np.multiply.outer(most, _STAKES)
    p, r, a, b = (value[:, None] for value in (p, r, a, b))
    factors = np.stack(
        [1 + stake * p * a, 1 - stake * p * (1 - a), 1 + stake * r * b, 1 - stake * r * (1 - b)],
        axis=-1,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.log(factors)  # (points, stakes, 4)
    logarithms[~np.isfinite(logarithms).all(axis=-1)] = 0.0  # no bet
    thresholds, payoffs = [], []
    for fraction in SUSPICIONS:
        noise = max(fraction, _SMALLEST_NOISE) * sigma
        v = np.concatenate([u, [0.5]])
        alpha = ndtr(-v / noise)
        beta = (1 - rate) * ndtr(v / noise) + rate * ndtr((v - 1) / noise)
        chances = np.stack([1 - alpha, alpha, 1 - beta, beta], axis=1)
        growth = np.einsum("vo,uso->vus", chances, logarithms)
        at, tangent, share = np.unravel_index(int(growth.argmax()), growth.shape)
        thresholds.append(v[at])
        payoffs.append(logarithms[tangent, share])
    return StepBets(thresholds=np.array(thresholds), payoffs=np.array(payoffs))
