"""How each kind of canary enters a step.

All coins are 0 or 1 and multiply: a step without the canary runs the same code as a step with it,
which costs little, and saves a second compilation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from dpaudit.errors import InvalidInput
from dpaudit.threat_models import (
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
)


class Inserter(ABC):
    """Puts canaries into the batch or into the clipped sum. Tensors it holds are on the device."""

    points: tuple[Tensor, Tensor] | None = None
    """Features and targets to append to every batch, if any; their weights are the coins."""

    @abstractmethod
    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        """The sums (runs, parameters) with what the coins (runs, canaries) say."""


@final
class DimensionInserter(Inserter):
    """Adds ``norm`` to one coordinate for each canary, as a look-up rather than a scattering."""

    def __init__(self, canaries: CraftedDimensions, parameters: int, device: torch.device) -> None:
        canary_of = torch.full((parameters,), canaries.count, dtype=torch.int64)
        canary_of[canaries.dimensions.cpu()] = torch.arange(canaries.count)
        self._canary_of = canary_of.to(device)
        self._norm = canaries.norm

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        none_last = torch.nn.functional.pad(coins, (0, 1))
        return sums + self._norm * none_last[:, self._canary_of]


@final
class GradientInserter(Inserter):
    """Adds dense gradients."""

    def __init__(
        self, canaries: CraftedGradients, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._gradients = canaries.gradients.to(device, dtype)

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums + coins @ self._gradients


@final
class PointInserter(Inserter):
    """Appends data points to the batch; the clipped sum is then complete."""

    def __init__(self, canaries: CanaryPoints, device: torch.device) -> None:
        self.points = (canaries.features.to(device), canaries.targets.to(device))

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums


@final
class SumInserter(Inserter):
    """Adds what an adaptive adversary's canaries came to: summed up already, coins and all."""

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums + coins


@final
class NoInserter(Inserter):
    """Nothing goes in: the adversary's own simulations."""

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums


def inserter(
    canaries: Canaries | None, parameters: int, dtype: torch.dtype, device: torch.device
) -> Inserter:
    """The inserter for this kind of canaries."""
    match canaries:
        case None:
            return NoInserter()
        case CraftedDimensions():
            return DimensionInserter(canaries, parameters, device)
        case CraftedGradients():
            return GradientInserter(canaries, dtype, device)
        case CanaryPoints():
            return PointInserter(canaries, device)
        case _:
            raise InvalidInput(
                "canaries must be CraftedDimensions, CraftedGradients or CanaryPoints, "
                f"got {type(canaries).__name__}"
            )
