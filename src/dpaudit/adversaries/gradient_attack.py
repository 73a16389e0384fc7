"""The gradient attack: a gradient in the dimensions training uses least, watched at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import (
    along,
    check_room,
    insertion_steps,
    parameter_count,
    released_sums,
)
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import (
    Canaries,
    CraftedGradients,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class GradientAttack(StandardAdversary):
    r"""Inserts :math:`C/\sqrt w` in each of the :math:`w` dimensions that a simulation moved least.

    The score is the inner product of the canary with the noisy sums of the insertion steps,
    added up. Every canary of many has dimensions of its own.

    See also: `SimulatedDimension`, the same thought in the hidden state; `MaliciousData`, which
    silences genuine gradients altogether.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the gradient attack. There the
    gradient is chosen at every step; we choose it once, by simulating.

    Arguments:
        width: :math:`w`.

    Example:
        >>> GradientAttack()
        GradientAttack(width=2)
    """

    name: ClassVar[str] = "gradient-attack"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): gradient attack"
    year = 2021
    canary = "gradient"

    width: int = 2

    def __post_init__(self) -> None:
        _validate.integer("width", self.width, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Take the least-moved dimensions of a noiseless simulation, ``width`` for each canary."""
        import torch

        from dpaudit.engine.simulation import simulate

        parameters = parameter_count(mechanism)
        check_room(canaries, parameters)
        if canaries * self.width > parameters:
            raise InvalidInput(
                f"canaries must be at most the number of parameters over the width "
                f"({parameters // self.width}), got {canaries}"
            )
        order = simulate(mechanism, noisy=False, runs=1, seed=seed).per_step.argsort(stable=True)
        own = order[: canaries * self.width].view(canaries, self.width)
        gradients = torch.zeros(canaries, parameters)
        gradients.scatter_(1, own, mechanism.clip_norm / math.sqrt(self.width))
        return CraftedGradients(gradients=gradients)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return along(canaries, released_sums(view, insertion_steps(view)))
