r"""The final model of a training whose updates are Lipschitz, by shifted interpolation.

The final model is :math:`\mu`-GDP for every sequence :math:`a_t \ge 0` with

.. math::
    z_0 = 0, \quad z_{t+1} = c_t z_t + 1[t \in I] - a_t \ge 0, \quad z_T = 0, \quad
    \mu^2 = \sum_t a_t^2 / \sigma^2 .

With :math:`w_t = \prod_{j>t} c_j` the constraints say that :math:`\sum_{i \le t} w_i a_i` stays
below :math:`y_t = \sum_{i \le t} w_i 1[i \in I]` and ends there. The cheapest such sequence follows
the greatest convex minorant of the points :math:`(\sum_{i \le t} w_i^2, y_t)`.

Paper:
    Bok, Su, Altschuler: *Shifted Interpolation for Differential Privacy* (ICML 2024, arXiv
    2403.00278).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds.base import Answer
from dpaudit.upper_bounds.hidden_state import HiddenStateAccountant, HiddenSteps


@final
@dataclass(frozen=True, kw_only=True)
class LipschitzAccountant(HiddenStateAccountant):
    r"""The bound for steps that are :math:`c`-Lipschitz, for any insertion pattern.

    See also:
        `shifted_mu`, the computation; `dpaudit.mechanisms.smoothness` for trainings whose constant
        is known.

    Example:
        >>> from dpaudit.upper_bounds.hidden_state import HiddenState
        >>> hidden = HiddenState(period=5, step_lipschitz=1.0)
        >>> steps = HiddenSteps(noise_multiplier=4.0, steps=1250, hidden_state=hidden)
        >>> LipschitzAccountant().epsilon(steps, delta=1e-5)
        Bound(epsilon <= 8.5959 at delta=1e-05, hidden-state-lipschitz)
    """

    name: ClassVar[str] = "hidden-state-lipschitz"

    def check(self, steps: HiddenSteps) -> None:
        if steps.hidden_state.step_lipschitz is None:
            raise InvalidInput(
                f"accountant {self.name} needs step_lipschitz, a Lipschitz constant of every "
                "update of the genuine examples, got None; see dpaudit.mechanisms.smoothness"
            )

    def _epsilon(self, steps: HiddenSteps, delta: float) -> Answer:
        mu = self._mu(steps)
        return self._answer(steps, gaussian_epsilon(delta, mu), mu)

    def _delta(self, steps: HiddenSteps, epsilon: float) -> Answer:
        mu = self._mu(steps)
        return self._answer(steps, float(gaussian_delta(epsilon, mu)), mu)

    def _mu(self, steps: HiddenSteps) -> float:
        hidden = steps.hidden_state
        constant = hidden.step_lipschitz
        mu = _cached_mu(
            constant if isinstance(constant, tuple) else float(constant),  # type: ignore[arg-type]
            steps.inserted.tobytes(),
            hidden.domain_diameter,
        )
        return mu / steps.noise_multiplier

    def _answer(self, steps: HiddenSteps, value: float, mu: float) -> Answer:
        hidden = steps.hidden_state
        constant = hidden.step_lipschitz
        largest = max(constant) if isinstance(constant, Sequence) else float(constant or 0.0)
        assumptions = [f"{hidden.assumption} (c = {largest:.6g})"]
        if hidden.domain_diameter is not None:
            assumptions.append(
                "every step projects onto a set of diameter "
                f"{hidden.domain_diameter:g} times eta C / B"
            )
        return Answer(
            value=value, mu=mu, assumptions=tuple(assumptions), details={"step_lipschitz": largest}
        )


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


def _merged(left: Block, right: Block) -> Block:
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
            block = _merged(blocks.pop(), block)
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
        for rise, kept in ((signal[t] + entering[t], False), (signal[t], True)):
            block: Block = (float(weights[t]), float(rise), 1.0)
            slope, size = _slope(block), len(blocks)
            while size and slope >= slopes[size - 1]:
                size -= 1
                block = _merged(block, blocks[size])
                slope = _slope(block)
            energy = sums[size] + _energy(block)
            if not kept:
                best = min(best, energy)
                continue
            del blocks[size:], slopes[size:], sums[size + 1 :]
            blocks.append(block)
            slopes.append(slope)
            sums.append(energy)
            if energy >= best:  # a start before this step, from any distance, costs at least this
                return best
    return best
