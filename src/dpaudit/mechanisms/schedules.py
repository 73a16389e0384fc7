"""Learning-rate schedules and weight averaging. Both are post-processing of the noisy gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from dpaudit import _validate


class LearningRateSchedule(ABC):
    """A factor of the learning rate for each step."""

    @abstractmethod
    def factor(self, step: int, steps: int) -> float:
        """The factor at ``step`` (0, 1, …) of a training of ``steps`` steps."""


@final
@dataclass(frozen=True, kw_only=True)
class ConstantRate(LearningRateSchedule):
    """The same learning rate at every step."""

    def factor(self, step: int, steps: int) -> float:
        return 1.0


@final
@dataclass(frozen=True, kw_only=True)
class WarmupDecay(LearningRateSchedule):
    """A linear warm-up, then a cosine or linear decay.

    Arguments:
        warmup: Number of steps of the warm-up; 0 starts at the full learning rate.
        decay: ``"cosine"``, ``"linear"`` or ``"none"``.
        last: The factor at the end of the decay, from 0 to 1.

    Example:
        >>> [round(WarmupDecay(warmup=2).factor(step, 6), 3) for step in range(6)]
        [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """

    warmup: int = 0
    decay: str = "cosine"
    last: float = 0.0

    def __post_init__(self) -> None:
        _validate.integer("warmup", self.warmup)
        _validate.one_of("decay", self.decay, ("cosine", "linear", "none"))
        _validate.between("last", self.last, 0, 1, closed_low=True, closed_high=True)

    def factor(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.decay == "none":
            return 1.0
        done = (step - self.warmup) / max(1, steps - self.warmup)
        left = (1 + math.cos(math.pi * done)) / 2 if self.decay == "cosine" else 1 - done
        return self.last + (1 - self.last) * left


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
