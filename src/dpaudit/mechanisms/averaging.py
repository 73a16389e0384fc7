"""Averages of the iterates, which are released instead of the last one.

They are post-processing, so upper bounds do not depend on them. They are written with arithmetic
operators only and work for torch tensors and numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from dpaudit import _validate


class WeightAveraging(ABC):
    """An average of the iterates, which is released as the final model."""

    @abstractmethod
    def update(self, average: Any, parameters: Any, *, count: Any) -> Any:
        """The new average after step ``count`` (1, 2, …); it starts as the initial parameters."""


@final
@dataclass(frozen=True, kw_only=True)
class ExponentialAverage(WeightAveraging):
    """An exponential moving average.

    Paper: De et al. (arXiv 2204.13650), section 3.4, for DP-SGD.

    Arguments:
        decay: Weight of the old average, from 0 to below 1.
    """

    decay: float = 0.999

    def __post_init__(self) -> None:
        _validate.between("decay", self.decay, 0, 1, closed_low=True)

    def update(self, average: Any, parameters: Any, *, count: Any) -> Any:
        return self.decay * average + (1 - self.decay) * parameters


@final
@dataclass(frozen=True, kw_only=True)
class UniformAverage(WeightAveraging):
    """The mean of all iterates after the start (Polyak, Ruppert)."""

    def update(self, average: Any, parameters: Any, *, count: Any) -> Any:
        return average + (parameters - average) / count
