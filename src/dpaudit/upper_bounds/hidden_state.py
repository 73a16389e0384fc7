r"""Upper bounds for an adversary who sees only the final model: two theorems.

The usual accountants bound what all iterates reveal. With further assumptions on the training, the
final model alone reveals less. Two such assumptions, each with its proof and its code:

- **Lipschitz updates** (`LipschitzAccountant`), by shifted interpolation;
- **per-example clipping alone** (`ClippingAccountant`): one clean step blurs an insertion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp, ndtr

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.privacy import Bound
from dpaudit.upper_bounds.accountants import HiddenStateAccountant
from dpaudit.upper_bounds.pld import MOST_POINTS, Curve, composed_range
from dpaudit.upper_bounds.steps import NoisySteps


@final
@dataclass(frozen=True, kw_only=True)
class LipschitzAccountant(HiddenStateAccountant):
    r"""The bound for steps that are :math:`c`-Lipschitz, for any insertion pattern.

    The final model is :math:`\mu`-GDP for every sequence :math:`a_t \ge 0` with

    .. math::
        z_0 = 0, \quad z_{t+1} = c_t z_t + 1[t \in I] - a_t \ge 0, \quad z_T = 0, \quad
        \mu^2 = \sum_t a_t^2 / \sigma^2 .

    The argument: let :math:`z_t` be a distance between the two trainings after step t, of which
    :math:`a_t` is covered by the noise of that step (Gaussian mechanism with sensitivity
    :math:`a_t`), and the rest is carried on by the next update, which multiplies it by at most
    :math:`c_t`. At the end nothing is left, and Gaussian mechanisms compose.

    Computation: with :math:`w_t = \prod_{j>t} c_j` the constraints say that
    :math:`\sum_{i \le t} w_i a_i` stays below :math:`y_t = \sum_{i \le t} w_i 1[i \in I]` and ends
    there. The cheapest such sequence follows the greatest convex minorant of the points
    :math:`(\sum_{i \le t} w_i^2, y_t)`.

    Paper:
        Bok, Su, Altschuler: *Shifted Interpolation for Differential Privacy* (ICML 2024, arXiv
        2403.00278).

    See also:
        `shifted_mu`, the computation; `dpaudit.mechanisms.smoothness` for trainings whose constant
        is known.

    Example:
        >>> from dpaudit.upper_bounds import HiddenState
        >>> hidden = HiddenState(period=5, step_lipschitz=1.0)
        >>> steps = NoisySteps(noise_multiplier=4.0, steps=1250, hidden_state=hidden)
        >>> LipschitzAccountant().epsilon(steps, delta=1e-5)
        Bound(epsilon <= 8.5959 at delta=1e-05, hidden-state-lipschitz)
    """

    name: ClassVar[str] = "hidden-state-lipschitz"

    def check(self, steps: NoisySteps) -> None:
        if steps.hidden.step_lipschitz is None:
            raise InvalidInput(
                f"accountant {self.name} needs step_lipschitz, a Lipschitz constant of every "
                "update of the genuine examples, got None; see dpaudit.mechanisms.smoothness"
            )

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        mu, fields = self._mu(steps)
        return self._bound(steps, "epsilon", gaussian_epsilon(delta, mu), delta, mu=mu, **fields)

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        mu, fields = self._mu(steps)
        value = float(gaussian_delta(epsilon, mu))
        return self._bound(steps, "delta", value, epsilon, mu=mu, **fields)

    def _mu(self, steps: NoisySteps) -> tuple[float, dict[str, Any]]:
        """Mu, and what the bound assumes about the updates."""
        hidden = steps.hidden
        given = hidden.step_lipschitz
        constant = given if isinstance(given, tuple) else float(given)  # type: ignore[arg-type]
        largest = max(constant) if isinstance(constant, tuple) else constant
        mu = _cached_mu(constant, steps.inserted.tobytes(), hidden.domain_diameter)
        assumptions = [f"{hidden.assumption} (c = {largest:.6g})"]
        if hidden.domain_diameter is not None:
            assumptions.append(
                "every step projects onto a set of diameter "
                f"{hidden.domain_diameter:g} times eta C / B"
            )
        fields = {"assumptions": tuple(assumptions), "details": {"step_lipschitz": largest}}
        return mu / steps.noise_multiplier, fields


def shifted_mu(
    step_lipschitz: ArrayLike, inserted: ArrayLike, *, domain_diameter: float | None = None
) -> float:
    r"""The smallest :math:`\mu\sigma` of shifted interpolation, in O(T).

    Arguments:
        step_lipschitz: One constant, or one per step; each above 0.
        inserted: For each step, whether the record takes part in it.
        domain_diameter: Diameter of a bounded domain in units of :math:`\eta C / B`; with it, the
            sequence may start at any step :math:`\tau` with :math:`z_\tau` equal to the diameter.

    Example:
        >>> round(shifted_mu(1.05, [True, False, False] * 4), 6)
        1.210514
    """
    signal = np.asarray(inserted, dtype=float)
    constants = np.broadcast_to(np.asarray(step_lipschitz, dtype=float), signal.shape)
    # log w_t for t = 0, …, T - 1: the product of the constants of all later steps.
    logs = np.log(constants)
    weights = np.concatenate([np.cumsum(logs[:0:-1])[::-1], [0.0]])
    energy = _minorant_energy(signal, weights)
    if domain_diameter is not None:
        energy = min(energy, _from_any_start(signal, weights, constants * domain_diameter))
    return math.sqrt(energy)


@lru_cache(maxsize=64)
def _cached_mu(
    constant: float | tuple[float, ...], inserted: bytes, diameter: float | None
) -> float:
    return shifted_mu(constant, np.frombuffer(inserted, dtype=bool), domain_diameter=diameter)


Block = tuple[float, float, float]
"""A segment of the minorant: the largest log weight m in it, and the sums of
:math:`e^{\\log w - m} 1[i \\in I]` and of :math:`e^{2(\\log w - m)}`. Weights relative to the
block's own largest one never overflow; the energy P^2 / Q does not depend on m."""


def _slope(block: Block) -> float:
    """The logarithm of a segment's slope dy / dx."""
    largest, rise, run = block
    return -math.inf if rise <= 0 else math.log(rise / run) - largest


def _joined(left: Block, right: Block) -> Block:
    largest = max(left[0], right[0])
    a, b = math.exp(left[0] - largest), math.exp(right[0] - largest)
    return largest, a * left[1] + b * right[1], a * a * left[2] + b * b * right[2]


def _energy(block: Block) -> float:
    return block[1] * block[1] / block[2]


def _minorant_energy(signal: Array, weights: Array) -> float:
    """The sum of (dy)^2 / dx over the minorant: pool adjacent blocks whose slopes decrease."""
    blocks: list[Block] = []
    slopes: list[float] = []
    for rise, weight in zip(signal.tolist(), weights.tolist(), strict=True):
        block: Block = (weight, rise, 1.0)
        slope = _slope(block)
        while blocks and slopes[-1] >= slope:
            block = _joined(blocks.pop(), block)
            slopes.pop()
            slope = _slope(block)
        blocks.append(block)
        slopes.append(slope)
    return sum(map(_energy, blocks))


def _from_any_start(signal: Array, weights: Array, entering: Array) -> float:
    """The smallest energy over all starts: at step tau the first rise grows by c_tau D.

    The minorants of all suffixes share their blocks: they are pooled from the right, and the start
    changes only the first block.
    """
    blocks: list[Block] = []  # of the suffix, the leftmost last
    slopes: list[float] = []
    sums = [0.0]  # energy of the blocks up to each place
    best = math.inf
    for t in range(len(signal) - 1, -1, -1):
        for rise, starts_here in ((signal[t] + entering[t], True), (signal[t], False)):
            block: Block = (float(weights[t]), float(rise), 1.0)
            slope, size = _slope(block), len(blocks)
            while size and slope >= slopes[size - 1]:
                size -= 1
                block = _joined(block, blocks[size])
                slope = _slope(block)
            energy = sums[size] + _energy(block)
            if starts_here:
                best = min(best, energy)
                continue
            del blocks[size:], slopes[size:], sums[size + 1 :]
            blocks.append(block)
            slopes.append(slope)
            sums.append(energy)
            if energy >= best:  # a start before this step, from any distance, costs at least this
                return best
    return best


_TAILS = 9.5
"""Noise deviations after which the loss of one insertion is cut; the mass beyond is below 1e-20."""

_LEAST_NOISE = 0.1
"""The time grows with the inverse cube of the noise, and is three seconds here."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_COARSE = 257  # epsilons at which the best shift is computed


@final
@dataclass(frozen=True, kw_only=True)
class ClippingAccountant(HiddenStateAccountant):
    r"""The bound that assumes only clipping and one step without the record after an insertion.

    Let a step with the record be followed by a step without it. In units of the clipping norm, the
    first gives :math:`N(0, \sigma^2)` or :math:`N(1, \sigma^2)` along the record's gradient; the
    second moves by at most :math:`B` and adds noise :math:`\sigma`. With
    :math:`m = p_1 - e^\epsilon p_0`, which changes sign once, at
    :math:`h = 1/2 + \epsilon\sigma^2`,

    .. math::
        \delta(\epsilon) \le \max_c
            \int_h^\infty m(x)\, \Phi\Big(\frac{x - h + B + c}\sigma\Big) dx
            - \int_{-\infty}^h |m(x)|\, \Phi\Big(\frac{x - h - B + c}\sigma\Big) dx ,

    for every landscape in any dimension.

    Proof: For every event :math:`A`, the function
    :math:`G(x) = \Phi^{-1}(P(x + \sigma Z \in A))` is :math:`1/\sigma`-Lipschitz
    (Neyman-Pearson), so a move changes it by at most :math:`B/\sigma`. Where m is positive G is
    then at most, and where m is negative at least, what a half line after a threshold at h gives. A
    threshold at h attains the right-hand side, so it is convex in :math:`e^\epsilon` and belongs
    to a pair of distributions. Later steps are post-processing. Insertions compose: the next one
    starts after the clean step, from whatever model that gave.

    Arguments:
        interval: Distance of the grid on which privacy losses are composed.

    Example:
        >>> from dpaudit.upper_bounds import HiddenState
        >>> hidden = HiddenState(insertion_steps=(0,), batch_size=4)
        >>> steps = NoisySteps(noise_multiplier=4.0, steps=2, hidden_state=hidden)
        >>> round(ClippingAccountant().epsilon(steps, delta=1e-5).epsilon, 3)
        0.868
    """

    name: ClassVar[str] = "hidden-state-clipping"
    interval: float = 1e-3

    def check(self, steps: NoisySteps) -> None:
        if steps.hidden.batch_size is None:
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

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        # The bound for all iterates holds as well, and needs no grid.
        batch, curve = self._composed(steps)
        value = min(curve.epsilon(delta), gaussian_epsilon(delta, steps.mu))
        return self._bound(steps, "epsilon", value, delta, assumptions=_clipped(batch))

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        batch, curve = self._composed(steps)
        value = min(curve.delta(epsilon), float(gaussian_delta(epsilon, steps.mu)))
        return self._bound(steps, "delta", value, epsilon, assumptions=_clipped(batch))

    def _composed(self, steps: NoisySteps) -> tuple[int, Curve]:
        """The batch size, and the profile of all insertions."""
        clean, sigma = _clean(steps), float(steps.noise_multiplier)
        others = steps.insertions - clean
        # A grid for the range of all losses together; a coarser one gives a larger bound.
        parts = [NoisySteps(noise_multiplier=sigma, steps=steps.insertions)]
        if others:
            parts.append(NoisySteps(noise_multiplier=sigma / math.sqrt(others), steps=1))
        least = max(map(composed_range, parts)) / MOST_POINTS
        interval = max(min(self.interval, 0.02 / math.sqrt(steps.insertions)), least)
        batch = int(steps.hidden.batch_size or 0)
        return batch, _composed_losses(sigma, batch, clean, others, interval)


def _clipped(batch: int) -> tuple[str]:
    return (f"every example is clipped, and a batch has at most {batch} genuine examples",)


def _clean(steps: NoisySteps) -> int:
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
        >>> deltas = one_clean_step_delta(np.array([4.0765]), sigma=1.0, reach=1.0, step_noise=1.0)
        >>> bool(abs(deltas[0] / 1e-5 - 1) < 1e-3)
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
def _composed_losses(sigma: float, batch: int, clean: int, others: int, interval: float) -> Curve:
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
