"""What poisoning adversaries share: points moved by gradient ascent within the data's range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import drawn_points, require_real_features
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Adversary, CanaryPoints

if TYPE_CHECKING:
    from dpaudit.data import Examples

    Slope = Callable[[torch.Tensor], torch.Tensor]


def starting_examples(mechanism: DPSGD, canaries: int, seed: int, adversary: str) -> CanaryPoints:
    """Training examples from which the ascent starts; they need real features."""
    require_real_features(mechanism, adversary)
    return drawn_points(mechanism, canaries, seed)


@dataclass(frozen=True, kw_only=True)
class ShadowPoisoning(Adversary):
    """Crafts training examples moved to where models trained without them have the largest loss.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.
    """

    year = 2021
    canary = "data point"

    shadows: int = 4
    steps: int = 20

    def __post_init__(self) -> None:
        _validate.integer("shadows", self.shadows, at_least=1)
        _validate.integer("steps", self.steps, at_least=1)

    @final
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Increase the mean loss of the shadow models."""
        from dpaudit.engine.evaluate import loss_slope
        from dpaudit.engine.simulation import simulate

        drawn = starting_examples(mechanism, canaries, seed, self.name)
        models = simulate(mechanism, noisy=True, runs=self.shadows, seed=seed).models
        slope = loss_slope(mechanism, models, drawn.targets)
        start = drawn.features.to(models.dtype)
        moved = climb(mechanism, start, slope, steps=self.steps, reach=1.0)
        return CanaryPoints(features=moved.to(drawn.features.dtype), targets=drawn.targets)


def climb(
    mechanism: DPSGD, features: torch.Tensor, slope: Slope, *, steps: int, reach: float
) -> torch.Tensor:
    """Points (…, *features) after gradient ascent with steps of constant length.

    Arguments:
        mechanism: Its data gives the range of every feature and the length of a typical example.
        features: Where the points start.
        slope: The gradient of the objective at given points.
        steps: Number of ascent steps.
        reach: Total distance, in lengths of a typical example.
    """
    lowest, highest, typical = _extent(mechanism.data)
    low, high = torch.from_numpy(lowest).to(features), torch.from_numpy(highest).to(features)
    length = reach * typical / steps
    axes = tuple(range(-low.ndim, 0))
    for _ in range(steps):
        uphill = slope(features)
        size = uphill.square().sum(dim=axes, keepdim=True).sqrt()
        # A point whose gradient is zero stays in place.
        features = features + length * uphill / size.clamp(min=1e-12)
        features = torch.minimum(torch.maximum(features, low), high)
    return features


@lru_cache(maxsize=4)  # every insertion step asks for the same one
def _extent(data: Examples) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """The range of every feature, and the mean length of an example."""
    flat = data.features.reshape(len(data), -1)
    typical = float(np.linalg.norm(flat, axis=1).mean())
    return data.features.min(axis=0), data.features.max(axis=0), typical
