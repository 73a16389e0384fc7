"""Canaries: what goes into a training when the coin says so."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import torch


class Canaries(ABC):
    """What goes into the training when the coin says so: ``count`` canaries, one coin each."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many canaries there are."""


@final
@dataclass(frozen=True, kw_only=True)
class CraftedDimensions(Canaries):
    """Canary ``i`` is the gradient ``norm * e_d`` with ``d = dimensions[i]``; all d distinct."""

    dimensions: torch.Tensor  # (count,) int64
    norm: float

    @property
    def count(self) -> int:
        return len(self.dimensions)


@final
@dataclass(frozen=True, kw_only=True)
class CraftedGradients(Canaries):
    """Canary ``i`` is the dense gradient ``gradients[i]``, of norm at most C."""

    gradients: torch.Tensor  # (count, parameters)

    @property
    def count(self) -> int:
        return len(self.gradients)


@final
@dataclass(frozen=True, kw_only=True)
class CanaryPoints(Canaries):
    """Canary ``i`` is a data point, appended to the batch and clipped like any other."""

    features: torch.Tensor  # (count, ...)
    targets: torch.Tensor  # (count,)

    @property
    def count(self) -> int:
        return len(self.targets)
