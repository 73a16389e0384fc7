"""Canaries: what is inserted into a training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch


class Canaries(ABC):
    """Several canaries of one kind. Each is inserted or not by a coin of its own."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of canaries."""


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
    """Canary ``i`` is an example that is appended to the batch and clipped like any other."""

    features: torch.Tensor  # (count, ...)
    targets: torch.Tensor  # (count, ...)

    @property
    def count(self) -> int:
        return len(self.targets)
