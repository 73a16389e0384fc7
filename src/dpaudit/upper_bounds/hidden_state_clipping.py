r"""The final model of any training with per-example clipping: one clean step blurs an insertion.

Let a step with the record be followed by a step without it. In units of the clipping norm, the
first gives :math:`N(0, \sigma^2)` or :math:`N(1, \sigma^2)` along the record's gradient; the second
moves by at most :math:`B` and adds noise :math:`\sigma`. For every event :math:`A`, the function
:math:`G(x) = \Phi^{-1}(P(x + \sigma Z \in A))` is :math:`1/\sigma`-Lipschitz, so a move changes it
by at most :math:`B/\sigma`. With :math:`m = p_1 - e^\epsilon p_0`, which changes sign once, at
:math:`h = 1/2 + \epsilon\sigma^2`, this gives

.. math::
    \delta(\epsilon) \le \max_c \int_h^\infty m(x)\, \Phi\Big(\frac{x - h + B + c}\sigma\Big) dx
        - \int_{-\infty}^h |m(x)|\, \Phi\Big(\frac{x - h - B + c}\sigma\Big) dx ,

for every landscape in any dimension. A threshold at h attains it, so the right-hand side is convex
in :math:`e^\epsilon` and belongs to a pair of distributions. Later steps are post-processing.
Insertions compose: the next one starts after the clean step, from whatever model that gave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp, ndtr

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds.base import Answer, NoisySteps
from dpaudit.upper_bounds.hidden_state import HiddenStateAccountant, HiddenSteps
from dpaudit.upper_bounds.privacy_loss import MOST_POINTS, Curve, composed_range

_TAILS = 9.5
"""Noise deviations after which the loss of one insertion is cut; the mass beyond is below 1e-20."""

_LEAST_NOISE = 0.1
"""The time grows with the inverse cube of the noise, and is three seconds here."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_COARSE = 257  # epsilons at which the best shift is computed


@final
@dataclass(frozen=True, kw_only=True)
class ClippingAccountant(HiddenStateAccountant):
    """The bound that assumes only clipping and one step without the record after an insertion.

    Arguments:
        interval: Distance of the grid on which privacy losses are composed.

    Example:
        >>> from dpaudit.upper_bounds.hidden_state import HiddenState
        >>> hidden = HiddenState(insertion_steps=(0,), batch_size=4)
        >>> steps = HiddenSteps(noise_multiplier=4.0, steps=2, hidden_state=hidden)
        >>> round(ClippingAccountant().epsilon(steps, delta=1e-5).epsilon, 3)
        0.868
    """

    name: ClassVar[str] = "hidden-state-clipping"
    interval: float = 1e-3

    def check(self, steps: HiddenSteps) -> None:
        if steps.hidden_state.batch_size is None:
            raise InvalidInput(
                f"accountant {self.name} needs batch_size, the number of genuine examples in a "
                "batch, got None"
            )
        if 0 < steps.noise_multiplier < _LEAST_NOISE:
            raise InvalidInput(
                f"accountant {self.name} needs a noise_multiplier of at least {_LEAST_NOISE}, got "
                f"{steps.noise_multiplier!r}; with less noise a clean step hides nothing, so that "
                "the bound for all iterates is as good"
            )
        if not _clean(steps):
            raise InvalidInput(
                f"accountant {self.name} needs an insertion that is followed by a step without the "
                f"record, got {steps.insertions} insertions and none is; use a period of at least 2"
            )

    def _epsilon(self, steps: HiddenSteps, delta: float) -> Answer:
        # The bound for all iterates holds as well, and needs no grid.
        every_iterate = gaussian_epsilon(delta, _mu(steps))
        return self._answer(steps, min(self._composed(steps).epsilon(delta), every_iterate))

    def _delta(self, steps: HiddenSteps, epsilon: float) -> Answer:
        every_iterate = float(gaussian_delta(epsilon, _mu(steps)))
        return self._answer(steps, min(self._composed(steps).delta(epsilon), every_iterate))

    def _composed(self, steps: HiddenSteps) -> Curve:
        clean, sigma = _clean(steps), float(steps.noise_multiplier)
        others = steps.insertions - clean
        # A grid for the range of all losses together; a coarser one gives a larger bound.
        parts = [NoisySteps(noise_multiplier=sigma, steps=steps.insertions)]
        if others:
            parts.append(NoisySteps(noise_multiplier=sigma / math.sqrt(others), steps=1))
        least = max(map(composed_range, parts)) / MOST_POINTS
        interval = max(min(self.interval, 0.02 / math.sqrt(steps.insertions)), least)
        return _composed(sigma, int(steps.hidden_state.batch_size or 0), clean, others, interval)

    def _answer(self, steps: HiddenSteps, value: float) -> Answer:
        return Answer(
            value=value,
            assumptions=(
                "every example is clipped, and a batch has at most "
                f"{steps.hidden_state.batch_size} genuine examples",
            ),
        )


def _mu(steps: HiddenSteps) -> float:
    """The Gaussian-DP parameter of all insertions together, if every iterate is released."""
    return math.sqrt(steps.insertions) / steps.noise_multiplier


def _clean(steps: HiddenSteps) -> int:
    """The number of insertions whose next step exists and is without the record."""
    inserted = steps.inserted
    return int((inserted[:-1] & ~inserted[1:]).sum())


def one_clean_step_delta(epsilon: Array, *, sigma: float, reach: float, step_noise: float) -> Array:
    r"""The bound on delta after one insertion and one clean step, at many epsilons of at least 0.

    Arguments:
        epsilon: Where to compute it.
        sigma: Noise multiplier of the step with the record.
        reach: Longest move of the clean step, in units of C: the batch size.
        step_noise: Noise of the clean step, in units of C; equal to ``sigma`` in DP-SGD.

    Example:
        >>> found = one_clean_step_delta(np.array([4.0765]), sigma=1.0, reach=1.0, step_noise=1.0)
        >>> bool(abs(found[0] / 1e-5 - 1) < 1e-3)
        True
    """
    epsilon = np.asarray(epsilon, dtype=float)
    integrals = partial(_Integrals, sigma=sigma, reach=reach, noise=step_noise)
    coarse = np.linspace(0.0, max(float(epsilon.max()), 1.0), _COARSE)
    # The best shift is smooth in epsilon, and an error of it changes delta in second order only.
    shift = CubicSpline(coarse, integrals(coarse).best_shift())
    parts = np.array_split(epsilon, max(1, epsilon.size // 256))
    delta = np.concatenate([integrals(part).delta(shift(part)) for part in parts])
    return np.asarray(np.maximum(delta * (1 + 1e-9), 0.0))


@final
class _Integrals:
    """Both integrals for a row of epsilons, on panels one noise deviation wide."""

    def __init__(self, epsilon: Array, *, sigma: float, reach: float, noise: float) -> None:
        h = 0.5 + epsilon * sigma**2
        self._reach, self._noise = reach, noise
        # Distances y from h on both sides.
        self._above = _nodes(math.ceil(_TAILS) + 1, sigma)
        self._below = _nodes(math.ceil(h.max() / sigma + _TAILS) + 1, sigma)
        self._gain, self._loss = (
            np.exp(epsilon[:, None] - 0.5 * ((h[:, None] + side * y) / sigma) ** 2)
            * np.abs(np.expm1(side * y / sigma**2))
            * (w / (sigma * math.sqrt(2 * math.pi)))
            for side, (y, w) in ((1, self._above), (-1, self._below))
        )

    def delta(self, shift: Array) -> Array:
        """The difference of the integrals."""
        above, below = self._arguments(shift)
        return np.asarray(
            (self._gain * ndtr(above)).sum(axis=1) - (self._loss * ndtr(below)).sum(axis=1)
        )

    def best_shift(self) -> Array:
        """The largest difference: bisection, because its derivative changes sign once.

        The logarithm of the ratio of both parts of the derivative decreases in the shift.
        """
        farthest = self._reach + self._below[0].max() + 10 * self._noise
        low = np.full(len(self._gain), -farthest)
        high = -low
        with np.errstate(divide="ignore"):  # densities that underflow to 0
            log_gain, log_loss = np.log(self._gain), np.log(self._loss)
        for _ in range(60):
            middle = (low + high) / 2
            above, below = self._arguments(middle)
            rising = logsumexp(log_gain - above**2 / 2, axis=1) > logsumexp(
                log_loss - below**2 / 2, axis=1
            )
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        return np.asarray((low + high) / 2)

    def _arguments(self, shift: Array) -> tuple[Array, Array]:
        shift = shift[:, None]
        return (
            (self._above[0] + self._reach + shift) / self._noise,
            (shift - self._below[0] - self._reach) / self._noise,
        )


def _nodes(panels: int, width: float) -> tuple[Array, Array]:
    middles = width * (np.arange(panels) + 0.5)[:, None]
    nodes = np.asarray(middles + width / 2 * _NODES, dtype=np.float64)
    return nodes.ravel(), np.tile(width / 2 * _WEIGHTS, panels)


@lru_cache(maxsize=128)
def _composed(sigma: float, batch: int, clean: int, others: int, interval: float) -> Curve:
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots

    most = math.ceil((0.5 / sigma**2 + _TAILS / sigma) / interval)
    up = np.asarray(interval * np.arange(most + 1), dtype=np.float64)
    delta = one_clean_step_delta(up, sigma=sigma, reach=float(batch), step_noise=sigma)
    # The bound is symmetric in the two data sets, which gives the negative epsilons.
    down = -np.expm1(-up[:0:-1]) + np.exp(-up[:0:-1]) * delta[:0:-1]
    deltas = np.minimum.accumulate(np.minimum(np.concatenate([down, delta]), 1.0))
    pmf: Any = create_pmf_pessimistic_connect_dots(interval, np.arange(-most, most + 1), deltas)
    total = privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(clean)
    if others:
        # Insertions without a clean step: together one Gaussian mechanism.
        total = total.compose(
            privacy_loss_distribution.from_gaussian_mechanism(
                sigma / math.sqrt(others), value_discretization_interval=interval
            )
        )
    return Curve.of(total, steps=clean + others, interval=interval)
