"""A start that is drawn in every training: its distribution, and adversaries that use it. For A9.

`dpaudit.adversaries.StartDistribution` does the same for any initialiser, from drawn models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from dpaudit.adversaries import RandomDimension
from dpaudit.adversaries.crafting import check_room, generator, move_along_dimensions
from dpaudit.presets import preset
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)
from dpaudit.tradeoff import gaussian_epsilon
from dpaudit_paper.readings import DELTA
from dpaudit_paper.trainings import Weights

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion

Array = NDArray[np.float64]

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

        biases = np.flatnonzero(half_widths(mechanism, "xavier") == 0)
        check_room(canaries, len(biases))
        chosen = generator(seed).choice(biases, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """As A_GC-R scores."""
        return move_along_dimensions(view, canaries)


@final
@dataclass(frozen=True, kw_only=True)
class KnownLaw(HiddenStateAdversary):
    """A_GC-R for an unknown start whose uniform distribution is known.

    The score is the log-likelihood ratio of the final weight with and without the canary, if only
    noise disturbs it. A weight far beyond an edge of the distribution reveals the canary; all
    others reveal almost nothing.
    """

    name: ClassVar[str] = "known-law"
    paper: ClassVar[str] = "ours, beside A_GC-R of Cebere, Bellet, Papernot (ICLR 2025)"
    rule: Weights

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """The canaries of A_GC-R."""
        return RandomDimension().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The log-likelihood ratio of each canary under each model."""
        import torch

        weights = move_along_dimensions(view, canaries).double()
        assert isinstance(canaries, CraftedDimensions)  # or the line above had refused them
        widths = half_widths(view.mechanism, self.rule)[canaries.dimensions.numpy()]
        edges = torch.from_numpy(widths).to(weights.device)
        moved, noise = moved_and_noise(view.steps)
        return _log_density(weights - moved, edges, noise) - _log_density(weights, edges, noise)


def half_widths(mechanism: DPSGD, rule: Weights) -> Array:
    """Half widths of all parameters of linear and convolutional layers; 0 for biases."""
    from dpaudit.engine.starting_points import known_model

    widths = []
    for name, value in known_model(mechanism).named_parameters():
        fan_out, fan_in = value.shape[0], math.prod(value.shape[1:])
        fan_out *= math.prod(value.shape[2:])
        width = 0.0 if name.endswith("bias") else half_width(rule, fan_in, fan_out)
        widths.append(np.full(value.numel(), width))
    return np.concatenate(widths)


def moved_and_noise(steps: int) -> tuple[float, float]:
    """The movement by a canary at every step, and the standard deviation of the noise."""
    training = preset("convnet")
    per_step = training.learning_rate * training.clip_norm / training.batch_size
    return steps * per_step, math.sqrt(steps) * training.noise_multiplier * per_step


def _log_density(weights: torch.Tensor, edges: torch.Tensor, noise: float) -> torch.Tensor:
    """The log density of a uniform start plus normal noise, up to a constant."""
    import torch

    outside = weights.abs()  # the distribution is symmetric
    upper = torch.special.log_ndtr((edges - outside) / noise)
    lower = torch.special.log_ndtr((-edges - outside) / noise)
    even = upper + torch.log1p(-torch.exp(lower - upper))
    return torch.where(edges > 0, even, -((outside / noise) ** 2) / 2)


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
