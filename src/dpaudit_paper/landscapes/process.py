r"""The one-dimensional landscape process of section 6 of the paper.

A canary is added to the first gradient, then :math:`T-1` more noisy steps run over a loss landscape
that the adversary drew before training. Only :math:`\theta_T` is released. This file describes
the process; `exact_privacy` computes it exactly, `simulate` draws runs.

Every length is in units of the clipping norm :math:`C`, on which privacy does not depend.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput

Scaling = Literal["paper", "dpsgd"]


class Landscape(ABC):
    r"""A bounded update rule: where the loss landscape pushes a parameter at each position.

    See also: `dpaudit_paper.landscapes.shapes`.
    """

    @abstractmethod
    def drift(self, position: Array, reach: float) -> Array:
        r"""The move :math:`-g(\theta)` at each position, never longer than ``reach``."""

    @abstractmethod
    def edges(self, low: float, high: float, reach: float) -> Array:
        """Every position strictly inside (low, high) where the drift jumps or has a kink.

        Exact quadrature cuts its panels there; a forgotten edge costs accuracy, which the
        refinement check of `dpaudit_paper.landscapes.exact_privacy` then reports.
        """


class BatchLandscapes(ABC):
    """A landscape for every step: the adversary knows the batches, and batches differ.

    See also:
        `dpaudit_paper.landscapes.MovingThreshold` and `dpaudit_paper.landscapes.ReadingWells`.
    """

    @abstractmethod
    def at(self, step: int) -> Landscape:
        """The landscape of this step; steps count from 1, and the first one has no drift."""


@dataclass(frozen=True, kw_only=True)
class LandscapeProcess:
    r"""A pair of one-dimensional processes, with and without the canary.

    See also:
        `dpaudit_paper.landscapes.exact_privacy` for what it leaks, and `simulate` there for scores.

    Cebere, Bellet, Papernot (ICLR 2025), equation (3), with the sign of the update absorbed in the
    drift :math:`d`, :math:`b = 1` with the canary and 0 without, and :math:`Z_t \sim N(0, 1)`:

    .. math::
        \theta_1 = b + \sigma Z_1, \qquad
        \theta_{t+1} = \theta_t + d(\theta_t) + \rho\,(b\,[t+1 \text{ inserts}] + \sigma Z_{t+1})

    The two scalings differ in the step ratio :math:`\rho` and in the reach :math:`|d| \le \beta`:

    ========= ================= ============= ===============================================
    scaling   :math:`\rho`      :math:`\beta` meaning
    ========= ================= ============= ===============================================
    ``paper`` :math:`1/B`       1             as printed: the first step is B times too large
    ``dpsgd`` 1                 B             DP-SGD's own update, in units of eta C / B
    ========= ================= ============= ===============================================

    Arguments:
        noise_multiplier: :math:`\sigma`, the noise's standard deviation over the clipping norm.
        batch_size: :math:`B`; the landscape is a sum of B clipped gradients, so it reaches B C.
        steps: :math:`T`, the number of steps before the model is released.
        landscape: The landscape, or one per step.
        period: Insert the canary at steps 1, 1+k, 1+2k, …; `None` for the first step only.
        scaling: ``"paper"`` or ``"dpsgd"``.

    Example:
        >>> from dpaudit_paper.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=16, steps=25, landscape=Threshold()
        ... )
        >>> process.reach, process.step_noise, process.insertions(25)
        (1.0, 0.0625, 1)
    """

    noise_multiplier: float
    batch_size: int
    steps: int
    landscape: Landscape | BatchLandscapes
    period: int | None = None
    scaling: Scaling = "paper"

    def __post_init__(self) -> None:
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.integer("batch_size", self.batch_size, at_least=1, at_most=10**9)
        _validate.integer("steps", self.steps, at_least=1, at_most=10**6)
        _validate.one_of("scaling", self.scaling, ("paper", "dpsgd"))
        if self.period is not None:
            _validate.integer("period", self.period, at_least=1, remedy="use 1 for every step")
            if self.period > self.steps:
                raise InvalidInput(
                    f"period must be at most the number of steps, {self.steps}, got {self.period}; "
                    "leave it out to insert the canary at the first step only"
                )
        if not isinstance(self.landscape, Landscape | BatchLandscapes):
            raise InvalidInput(
                f"landscape must be a Landscape, got {self.landscape!r}; "
                "use dpaudit_paper.landscapes.named_landscape"
            )

    @property
    def step_ratio(self) -> float:
        r""":math:`\rho`: size of a later step's canary and noise relative to the first step's."""
        return 1 / self.batch_size if self.scaling == "paper" else 1.0

    @property
    def step_noise(self) -> float:
        r"""Standard deviation :math:`\rho\sigma` of the noise of steps 2, 3, …"""
        return self.step_ratio * self.noise_multiplier

    @property
    def reach(self) -> float:
        """The longest move of the landscape in one step."""
        return 1.0 if self.scaling == "paper" else float(self.batch_size)

    def inserts(self, step: int) -> bool:
        """Whether the canary is in the batch of this step; steps count from 1."""
        return step == 1 or (self.period is not None and (step - 1) % self.period == 0)

    def insertions(self, step: int) -> int:
        """How many of the first ``step`` steps contain the canary."""
        return 1 if self.period is None else 1 + (step - 1) // self.period

    def landscape_at(self, step: int) -> Landscape:
        """The landscape of this step; steps count from 1."""
        chosen = self.landscape
        return chosen.at(step) if isinstance(chosen, BatchLandscapes) else chosen

    def drift(self, position: Array, *, step: int = 2) -> Array:
        """The landscape's move at each position in this step."""
        return self.landscape_at(step).drift(position, self.reach)

    def with_landscape(self, landscape: Landscape | BatchLandscapes) -> LandscapeProcess:
        """The same process over another landscape."""
        return replace(self, landscape=landscape)


def accountant_mu(process: LandscapeProcess, step: int) -> float:
    r"""Gaussian DP of all iterates up to a step: :math:`\sqrt{\text{insertions}}/\sigma`.

    Steps without the canary are post-processing; that the state is hidden is not used.

    Arguments:
        process: The process.
        step: The last step, from 1.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=1, steps=10, period=5, landscape=Constant()
        ... )
        >>> round(accountant_mu(process, 10), 4)
        0.3536
    """
    return math.sqrt(process.insertions(step)) / process.noise_multiplier


def decision_point(process: LandscapeProcess, *, delta: float = 1e-5) -> float:
    r"""Where the first step's likelihood ratio is :math:`e^\epsilon`, in units of C.

    For two unit-spaced normals :math:`\log(p_1/p_0) = (x - 1/2)/\sigma^2`.

    Example:
        >>> from dpaudit_paper.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=16, steps=25, landscape=Threshold()
        ... )
        >>> round(decision_point(process), 3)
        4.877
    """
    sigma = process.noise_multiplier
    return 0.5 + gaussian_epsilon(delta, 1 / sigma) * sigma**2
