r"""Families of scores whose privacy loss is known exactly, with exact samplers.

Each family is a pair of score distributions, one for canaries that were inserted and one for
canaries that were not. Its privacy profile is the largest of both directions,

.. math:: \delta(\epsilon) = \max\{\sup_A P(A) - e^\epsilon Q(A), \sup_A Q(A) - e^\epsilon P(A)\},

so a lower bound on epsilon above ``epsilon(delta)`` is false for every method. The
likelihood ratio of every family rises with the score: some threshold attains the supremum, which
leaves a bound no slack to hide in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dpaudit.curves import gaussian_delta

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]


class ScoreFamily(ABC):
    """A pair of score distributions with a known privacy profile."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the family is called in tables."""

    @abstractmethod
    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        """One independent score for each coin, in the coins' shape."""

    @abstractmethod
    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        """Exact probability that a score with (or without) the canary lies above each threshold."""

    @abstractmethod
    def delta(self, epsilon: ArrayLike) -> Array:
        """The exact privacy profile, the larger of both directions."""

    def epsilon(self, delta: float) -> float:
        """The exact epsilon at ``delta``: where the profile falls to it."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
            if high > 1e4:
                return math.inf
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def audit(self, each: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Scores of one audit with exactly ``each`` inserted and other canaries."""
        coins = np.repeat([True, False], each)
        scores = self.draw(coins, random)
        return scores[coins], scores[~coins]


@final
@dataclass(frozen=True)
class Gaussian(ScoreFamily):
    """N(mu, 1) against N(0, 1)."""

    mu: float

    @property
    def name(self) -> str:
        return f"Gaussian, mu = {self.mu:g}"

    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        return self.mu * inserted + random.standard_normal(inserted.shape)

    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        return np.asarray(ndtr(self.mu * inserted - np.asarray(threshold, dtype=float)))

    def delta(self, epsilon: ArrayLike) -> Array:
        return gaussian_delta(epsilon, self.mu)


@final
@dataclass(frozen=True)
class SubsampledGaussian(ScoreFamily):
    r"""(1-q) N(0, 1) + q N(mu, 1) against N(0, 1): one Poisson-sampled step with noise 1/mu.

    The likelihood ratio is :math:`L(x) = 1 - q + q e^{\mu x - \mu^2/2}`. The best set for a given
    epsilon is where L is above :math:`e^\epsilon`, or where it is below :math:`e^{-\epsilon}`.
    """

    rate: float
    mu: float

    @property
    def name(self) -> str:
        return f"subsampled Gaussian, q = {self.rate:g}, mu = {self.mu:g}"

    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        sampled = inserted & (random.random(inserted.shape) < self.rate)
        return self.mu * sampled + random.standard_normal(inserted.shape)

    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        cut = np.asarray(threshold, dtype=float)
        quiet = ndtr(-cut)
        if not inserted:
            return np.asarray(quiet)
        return np.asarray((1 - self.rate) * quiet + self.rate * ndtr(self.mu - cut))

    def delta(self, epsilon: ArrayLike) -> Array:
        growth = np.exp(np.asarray(epsilon, dtype=float))
        loud, quiet = self._cut(growth), self._cut(1 / growth)
        forth = self.above(loud, True) - growth * self.above(loud, False)
        back = (1 - self.above(quiet, False)) - growth * (1 - self.above(quiet, True))
        return np.asarray(np.maximum(np.maximum(forth, back), 0.0))

    def _cut(self, ratio: Array) -> Array:
        """The score at which the likelihood ratio has this value; minus infinity below all."""
        with np.errstate(divide="ignore"):
            odds = np.maximum(ratio - 1 + self.rate, 0.0) / self.rate
            return np.asarray((np.log(odds) + self.mu**2 / 2) / self.mu)


@final
@dataclass(frozen=True)
class Laplace(ScoreFamily):
    """Laplace noise of scale 1 around ``shift`` against around 0: exactly (shift, 0)-DP.

    Beyond either centre *every* threshold has the ratio of rates at its maximum, down to
    thresholds that only one score in thousands passes: much to choose from for a lucky threshold.
    """

    shift: float

    @property
    def name(self) -> str:
        return f"Laplace, epsilon = {self.shift:g}"

    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        return self.shift * inserted + random.laplace(size=inserted.shape)

    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        x = np.asarray(threshold, dtype=float) - self.shift * inserted
        tail = np.exp(-np.abs(x)) / 2
        return np.where(x >= 0, tail, 1 - tail)

    def delta(self, epsilon: ArrayLike) -> Array:
        below = np.minimum(np.asarray(epsilon, dtype=float) - self.shift, 0.0)
        return np.asarray(-np.expm1(below / 2))


@final
@dataclass(frozen=True)
class RandomisedResponse(ScoreFamily):
    r"""The least private mechanism that is (epsilon, delta)-DP; two or four scores, all ties.

    With probability ``certain`` it tells the truth and says so (scores 3 and 0); else it answers 2
    or 1 and is right with odds :math:`e^{spread}`. Kairouz, Oh, Viswanath 2015, Theorem 3.3: every
    (epsilon, delta)-DP mechanism is a function of this one.
    """

    spread: float
    certain: float = 0.0

    @property
    def name(self) -> str:
        if self.certain == 0:
            return f"randomised response, epsilon = {self.spread:g}"
        return f"randomised response, epsilon = {self.spread:g}, delta = {self.certain:g}"

    @property
    def _right(self) -> float:
        return 1 / (1 + math.exp(-self.spread))

    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        right = random.random(inserted.shape) < self._right
        sure = random.random(inserted.shape) < self.certain
        return np.where(sure, np.where(inserted, 3.0, 0.0), np.where(right == inserted, 2.0, 1.0))

    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        yes = self._right if inserted else 1 - self._right
        sure, unsure = self.certain, 1 - self.certain
        masses = [sure * (not inserted), unsure * (1 - yes), unsure * yes, sure * inserted]
        cut = np.asarray(threshold, dtype=float)
        return np.asarray(sum(mass * (cut < score) for score, mass in enumerate(masses)))

    def delta(self, epsilon: ArrayLike) -> Array:
        below = np.minimum(np.asarray(epsilon, dtype=float) - self.spread, 0.0)
        return np.asarray(self.certain + (1 - self.certain) * self._right * -np.expm1(below))


@final
@dataclass(frozen=True)
class TwoPointMixture(ScoreFamily):
    """Randomised response whose two answers are spread evenly over [0, 1) and [1, 2).

    The likelihood ratio takes only two values, so *every* threshold between 0 and 2 attains epsilon
    exactly, in one direction or the other: the hardest pair for a threshold that was selected.
    """

    spread: float

    @property
    def name(self) -> str:
        return f"two-point mixture, epsilon = {self.spread:g}"

    @property
    def _answers(self) -> RandomisedResponse:
        return RandomisedResponse(self.spread)

    def draw(self, inserted: Coins, random: np.random.Generator) -> Array:
        return self._answers.draw(inserted, random) - 1 + random.random(inserted.shape)

    def above(self, threshold: ArrayLike, inserted: bool) -> Array:
        cut = np.asarray(threshold, dtype=float)
        yes = float(self._answers.above(1.5, inserted))
        upper, lower = np.clip(2 - cut, 0.0, 1.0), np.clip(1 - cut, 0.0, 1.0)
        return np.asarray(yes * upper + (1 - yes) * lower)

    def delta(self, epsilon: ArrayLike) -> Array:
        return self._answers.delta(epsilon)


def draw_sampled_steps(
    inserted: Coins,
    random: np.random.Generator,
    *,
    noise_multiplier: float,
    steps: int,
    sampling_rate: float,
) -> Array:
    """Scores of the best adversary who sees every step of Poisson-sampled DP-SGD.

    The score is the log likelihood ratio of all steps, so the audit reaches the trade-off curve of
    the worst pair itself: the claim of an accountant is met, with nothing to spare.
    """
    mu = 1 / noise_multiplier
    total = np.zeros(inserted.shape)
    for _ in range(steps):
        sampled = inserted & (random.random(inserted.shape) < sampling_rate)
        seen = mu * sampled + random.standard_normal(inserted.shape)
        total += np.log1p(sampling_rate * np.expm1(mu * seen - mu * mu / 2))
    return total
