r"""When the update of the genuine examples is known to be Lipschitz, and with which constant.

The update is :math:`\varphi(\theta) = (1 - \eta\lambda)\theta - \frac\eta B \sum_i
\mathrm{clip}(\nabla \ell_i(\theta), C)`. Its Lipschitz constant :math:`c` decides how much hiding
the intermediate models can help; see `dpaudit.upper_bounds.hidden_state`. Every type here computes
:math:`c` for a training, and refuses a training for which it does not hold. A constant measured
along a training is an estimate and never a bound, so there is no type for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.batches import PoissonBatches

if TYPE_CHECKING:
    from dpaudit.mechanisms.dpsgd import DPSGD

_CURVATURE = {"logistic": 0.25, "squared": 1.0, "huber": 1.0}


class Smoothness(ABC):
    """A reason why the update of the genuine examples is Lipschitz."""

    @final
    def step_lipschitz(self, mechanism: DPSGD) -> float:
        """The Lipschitz constant of every update; `InvalidInput` if the assumption is wrong."""
        if isinstance(mechanism.batches, PoissonBatches):
            raise InvalidInput(
                "batches must have a fixed size for a Lipschitz constant of the update, got "
                f"{mechanism.batches!r}; use FixedBatches"
            )
        if not mechanism.is_plain:
            raise InvalidInput(
                "the training must be plain DP-SGD, with or without weight decay, for a Lipschitz "
                f"constant of the update, got {mechanism.further_settings()}; use the defaults"
            )
        return self._constant(mechanism)

    @property
    @abstractmethod
    def assumption(self) -> str:
        """The assumption as one sentence."""

    @abstractmethod
    def _constant(self, mechanism: DPSGD) -> float:
        """The Lipschitz constant for batches of fixed size."""


@final
@dataclass(frozen=True, kw_only=True)
class LinearModel(Smoothness):
    r"""A linear model without bias, one output, and a convex loss of that output.

    The gradient of an example is a number times its features, so that clipping gives the gradient
    of another convex loss with the same smoothness :math:`M` (Song, Steinke, Thakkar, Thakurta:
    *Evading the curse of dimensionality in unconstrained private GLMs*, 2021). Hence
    :math:`c = \max(|1 - \eta\lambda|, |1 - \eta(\lambda + M)|)` with :math:`M` at most
    :math:`\max |x|^2 / 4` (logistic) or :math:`\max |x|^2` (squared, Huber).

    Arguments:
        loss: ``"logistic"``, ``"squared"`` (half the squared error) or ``"huber"`` (with slope at
            most 1).
    """

    loss: Literal["logistic", "squared", "huber"] = "logistic"

    def __post_init__(self) -> None:
        _validate.one_of("loss", self.loss, tuple(_CURVATURE))

    @property
    def assumption(self) -> str:
        return f"a linear model with {self.loss} loss, clipped per example, has Lipschitz updates"

    def _constant(self, mechanism: DPSGD) -> float:
        return _convex(mechanism, _CURVATURE[self.loss] * _largest_norm(mechanism) ** 2)


@final
@dataclass(frozen=True, kw_only=True)
class SoftmaxHead(Smoothness):
    r"""A linear model without bias and softmax cross-entropy whose clipping is never active.

    The gradient norm is at most :math:`\sqrt 2 |x|` and the smoothness at most
    :math:`M = \max |x|^2 / 2`. It is refused unless :math:`C \ge \sqrt 2 \max |x|`.
    """

    @property
    def assumption(self) -> str:
        return "softmax cross-entropy of a linear model whose clipping is never active"

    def _constant(self, mechanism: DPSGD) -> float:
        largest = _largest_norm(mechanism)
        steepest = math.sqrt(2) * largest
        if mechanism.clip_norm < steepest * (1 - 1e-9):
            raise InvalidInput(
                f"clip_norm must be at least {steepest:.6g}, the largest gradient norm, so that "
                f"clipping is never active, got {mechanism.clip_norm:g}; raise it or scale the "
                "features"
            )
        return _convex(mechanism, largest**2 / 2)


@final
@dataclass(frozen=True, kw_only=True)
class SmoothLoss(Smoothness):
    r"""Any M-smooth loss, also non-convex, clipped per example.

    Clipping is a projection onto a ball, so that a clipped gradient is M-Lipschitz and
    :math:`c = |1 - \eta\lambda| + \eta M`. ReLU networks are not smooth; momentum is not covered.

    Arguments:
        smoothness: Smoothness M of the loss of every example.
    """

    smoothness: float

    def __post_init__(self) -> None:
        _validate.positive("smoothness", self.smoothness)

    @property
    def assumption(self) -> str:
        return f"the loss of every example is {self.smoothness:g}-smooth"

    def _constant(self, mechanism: DPSGD) -> float:
        rate = mechanism.learning_rate
        return abs(1 - rate * mechanism.weight_decay) + rate * self.smoothness


@final
@dataclass(frozen=True, kw_only=True)
class GivenLipschitz(Smoothness):
    """A Lipschitz constant that the user asserts.

    Arguments:
        constant: The Lipschitz constant of every update.
        reason: Why it holds, as one sentence.
    """

    constant: float
    reason: str = "the Lipschitz constant of the updates is asserted by the user"

    def __post_init__(self) -> None:
        _validate.positive("constant", self.constant)

    @property
    def assumption(self) -> str:
        return self.reason

    def _constant(self, mechanism: DPSGD) -> float:
        return self.constant


def _convex(mechanism: DPSGD, smoothness: float) -> float:
    """The constant of a convex loss: eigenvalues of the Hessian lie between 0 and M."""
    rate, decay = mechanism.learning_rate, mechanism.weight_decay
    return max(abs(1 - rate * decay), abs(1 - rate * (decay + smoothness)))


def _largest_norm(mechanism: DPSGD) -> float:
    features = mechanism.data.features.reshape(len(mechanism.data), -1).astype(float)
    return float(np.sqrt((features**2).sum(axis=1).max()))
