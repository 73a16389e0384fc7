"""The gradient attack: a gradient in the dimensions that training moves least, seen stepwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import parameter_count, released_along
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedGradients, StandardAdversary, StandardView


@final
@dataclass(frozen=True, kw_only=True)
class GradientAttack(StandardAdversary):
    r"""Inserts :math:`C/\sqrt w` in each of the :math:`w` dimensions that a simulation moved least.

    The score is the inner product of the canary with the noisy sums of the insertion steps. Several
    canaries have different dimensions.

    See also: `SimulatedDimension`, the same idea in the hidden state threat model;
    `MaliciousData`, which removes genuine gradients altogether.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the gradient attack. There the
    gradient is chosen at every step; here once, by simulation.

    Arguments:
        width: Number of dimensions :math:`w` of each canary.

    Example:
        >>> GradientAttack()
        GradientAttack(width=2)
    """

    name = "gradient-attack"
    paper = "Nasr et al. (S&P 2021): gradient attack"
    year = 2021
    canary = "gradient"

    width: int = 2

    def __post_init__(self) -> None:
        _validate.integer("width", self.width, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Take the least-moved dimensions of a noiseless simulation, ``width`` for each canary."""
        from dpaudit.engine.simulation import simulate

        parameters = parameter_count(mechanism, canaries=canaries)
        if canaries * self.width > parameters:
            raise InvalidInput(
                f"canaries must be at most the number of parameters divided by the width "
                f"({parameters // self.width}), got {canaries}"
            )
        order = simulate(mechanism, noisy=False, runs=1, seed=seed).per_step.argsort(stable=True)
        own = order[: canaries * self.width].view(canaries, self.width)
        gradients = torch.zeros(canaries, parameters)
        gradients.scatter_(1, own, mechanism.clip_norm / math.sqrt(self.width))
        return CraftedGradients(gradients=gradients)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return released_along(view, canaries)
