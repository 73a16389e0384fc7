"""A start that is drawn in every training: what the distribution of a weight reveals. For A9.

The adversary that uses the distribution is `dpaudit.adversaries.StartDistribution`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from dpaudit._arrays import Array
from dpaudit.adversaries.crafting import check_room, generator, move_along_dimensions
from dpaudit.curves import gaussian_epsilon
from dpaudit.presets import preset
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)
from dpaudit_paper.trainings import DELTA, Weights

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


FANS = (400, 120)
"""Fan-in and fan-out of the ConvNet's largest layer, which has 77 % of its weights."""


def half_width(rule: Weights, fan_in: int, fan_out: int) -> float:
    """Half the width of the uniform distribution of a weight.

    Example:
        >>> round(half_width("xavier", 400, 120), 3), round(half_width("kaiming", 400, 120), 3)
        (0.107, 0.122)
    """
    return math.sqrt(6 / (fan_in + fan_out if rule == "xavier" else fan_in))


@final
@dataclass(frozen=True, kw_only=True)
class RandomBias(HiddenStateAdversary):
    """A_GC-R on biases only: they start at zero, so that an unknown start loses nothing."""

    name: ClassVar[str] = "random-bias"
    paper: ClassVar[str] = "ours, beside A_GC-R of Cebere, Bellet, Papernot (ICLR 2025)"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct biases."""
        import torch

        biases = np.flatnonzero(_is_bias(mechanism))
        check_room(canaries, len(biases))
        chosen = generator(seed).choice(biases, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """As A_GC-R scores."""
        return move_along_dimensions(view, canaries)


def _is_bias(mechanism: DPSGD) -> NDArray[np.bool_]:
    """For every parameter of the model, whether it belongs to a bias."""
    from dpaudit.engine.starting_points import known_model

    named = known_model(mechanism).named_parameters()
    return np.concatenate([np.full(value.numel(), name.endswith("bias")) for name, value in named])


def moved_and_noise(steps: int) -> tuple[float, float]:
    """The movement by a canary at every step, and the standard deviation of the noise."""
    training = preset("convnet")
    per_step = training.learning_rate * training.clip_norm / training.batch_size
    return steps * per_step, math.sqrt(steps) * training.noise_multiplier * per_step


def exact_epsilon(rule: Weights, steps: int) -> float:
    """The exact epsilon of a weight of the largest layer that only noise disturbs.

    Example:
        >>> round(exact_epsilon("xavier", 250), 2)
        19.58
    """
    moved, noise = moved_and_noise(steps)
    width = half_width(rule, *FANS)
    grid = np.linspace(-width - 12 * noise, width + moved + 12 * noise, 200_001)

    def density(weights: Array) -> Array:
        upper, lower = (ndtr((side - np.abs(weights)) / noise) for side in (width, -width))
        return np.asarray((upper - lower) / (2 * width))

    with_canary, without = density(grid - moved), density(grid)

    def excess(epsilon: float) -> float:
        over = np.clip(with_canary - math.exp(epsilon) * without, 0, None)
        return float(over.sum() * (grid[1] - grid[0])) - DELTA

    return float(brentq(excess, 0, 60)) if excess(0) > 0 else 0.0


def normal_epsilon(rule: Weights, steps: int) -> float:
    """The same for a normal distribution with the same standard deviation."""
    moved, noise = moved_and_noise(steps)
    deviation = math.hypot(noise, half_width(rule, *FANS) / math.sqrt(3))
    return gaussian_epsilon(DELTA, moved / deviation)
