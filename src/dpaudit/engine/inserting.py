"""How each kind of canary enters a step.

Coins are 0 or 1 and multiply the canaries: a step without the canary runs the same code as a step
with it. This costs little and avoids a second compilation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.errors import InvalidInput
from dpaudit.threat_models import Canaries, CanaryPoints, CraftedDimensions, CraftedGradients


class Inserter(ABC):
    """Adds canaries to the batch or to the clipped sum. Its tensors are on the device."""

    points: tuple[Tensor, Tensor] | None = None
    """Features and targets to append to every batch, if any; the coins are their weights."""

    @abstractmethod
    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        """The sums (runs, parameters) plus the canaries selected by ``coins`` (runs, canaries)."""


@final
class DimensionInserter(Inserter):
    """Adds ``norm`` to one coordinate for each canary, by a look-up instead of a scatter."""

    def __init__(self, canaries: CraftedDimensions, parameters: int, device: torch.device) -> None:
        canary_of = torch.full((parameters,), canaries.count, dtype=torch.int64)
        canary_of[canaries.dimensions.cpu()] = torch.arange(canaries.count)
        self._canary_of = canary_of.to(device)
        self._norm = canaries.norm

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        none_last = functional.pad(coins, (0, 1))
        return sums + self._norm * none_last[:, self._canary_of]


@final
class GradientInserter(Inserter):
    """Adds dense gradients."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums + coins @ self._gradients


@final
class SumInserter(Inserter):
    """Adds the canaries of an adaptive adversary, which are already multiplied by their coins."""

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums + coins


@final
class BatchInserter(Inserter):
    """Appends examples to the batch, or inserts nothing; the clipped sum is then complete."""

    def __init__(self, points: tuple[Tensor, Tensor] | None = None) -> None:
        self.points = points

    def add(self, sums: Tensor, coins: Tensor) -> Tensor:
        return sums


def inserter(
    canaries: Canaries | None, parameters: int, dtype: torch.dtype, device: torch.device
) -> Inserter:
    """The inserter for this kind of canaries."""
    match canaries:
        case None:
            return BatchInserter()
        case CraftedDimensions():
            return DimensionInserter(canaries, parameters, device)
        case CraftedGradients():
            return GradientInserter(canaries.gradients.to(device, dtype))
        case CanaryPoints():
            return BatchInserter((canaries.features.to(device), canaries.targets.to(device)))
        case _:
            raise InvalidInput(
                "canaries must be CraftedDimensions, CraftedGradients or CanaryPoints, "
                f"got {type(canaries).__name__}"
            )
