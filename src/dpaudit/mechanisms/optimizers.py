r"""Optimizers, learning-rate schedules and averages of iterates: what becomes of noisy gradients.

They are post-processing of the noisy gradients, so upper bounds do not depend on them. They are
written with arithmetic operators only and work for torch tensors and numpy arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from dpaudit import _validate
from dpaudit.errors import InvalidInput


class Optimizer(ABC):
    """Changes parameters by noisy gradients, with a state of several arrays."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of state arrays, each of the shape of the parameters and initially zero."""

    @abstractmethod
    def step(
        self, parameters: Any, gradient: Any, state: tuple[Any, ...], *, rate: Any, count: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """The new parameters and the new state; steps are counted from 1.

        The gradient is the noisy sum divided by the batch size.
        """


@final
@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    r"""Stochastic gradient descent, with momentum as in `torch.optim.SGD`.

    .. math:: v \leftarrow \beta v + g, \qquad
        \theta \leftarrow \theta - \eta v \quad\text{or}\quad \theta - \eta (g + \beta v)

    The second form is Nesterov's.

    Arguments:
        momentum: :math:`\beta`, from 0 (none) to below 1.
        nesterov: Whether to use Nesterov's form.
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _validate.between("momentum", self.momentum, 0, 1, closed_low=True)
        if self.nesterov and not self.momentum:
            raise InvalidInput("momentum must be above 0 for nesterov=True, got 0; use 0.9")

    @property
    def slots(self) -> int:
        return 1 if self.momentum else 0

    def step(
        self, parameters: Any, gradient: Any, state: tuple[Any, ...], *, rate: Any, count: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        if not self.momentum:
            return parameters - rate * gradient, ()
        velocity = self.momentum * state[0] + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return parameters - rate * direction, (velocity,)


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    r"""Adam as in `torch.optim.Adam`. With the mechanism's ``weight_decay`` it is AdamW.

    Paper: Kingma, Ba (ICLR 2015), Algorithm 1; Loshchilov, Hutter (ICLR 2019), Algorithm 2, for the
    decoupled weight decay.

    Arguments:
        beta1: Decay of the mean of gradients, from 0 to below 1.
        beta2: Decay of the mean of squared gradients, from 0 to below 1.
        epsilon: Added to the root of the mean of squares, above 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _validate.between("beta1", self.beta1, 0, 1, closed_low=True)
        _validate.between("beta2", self.beta2, 0, 1, closed_low=True)
        _validate.positive("epsilon", self.epsilon)

    @property
    def slots(self) -> int:
        return 2

    def step(
        self, parameters: Any, gradient: Any, state: tuple[Any, ...], *, rate: Any, count: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        mean = self.beta1 * state[0] + (1 - self.beta1) * gradient
        square = self.beta2 * state[1] + (1 - self.beta2) * gradient * gradient
        size = (square / (1 - self.beta2**count)) ** 0.5 + self.epsilon
        return parameters - rate * (mean / (1 - self.beta1**count)) / size, (mean, square)


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
