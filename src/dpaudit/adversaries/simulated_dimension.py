"""A_GC-S: a gradient along the axis that training moves least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import move_along_dimensions, parameter_count
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedDimensions, HiddenStateAdversary, HiddenStateView

Simulation = Literal["noiseless", "noisy"]
Ranking = Literal["per-step", "final-model"]


@final
@dataclass(frozen=True, kw_only=True)
class SimulatedDimension(HiddenStateAdversary):
    r"""Simulates the training and inserts :math:`C e_d` in the dimension that moved least.

    Genuine gradients then hardly change the canary's trace. The score is
    :math:`-(\theta_T - \theta_0)_d`. If the initialisation is not public, the score is
    :math:`-(\theta_T)_d`, and the simulations start from models drawn by the adversary. Several
    canaries take the least-moved dimensions, one each.

    See also: `RandomDimension`, which is as good when the model has many more parameters than the
    batch has examples.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Simulated
    Biased Dimension", with two corrections: movements add up over the simulations, and the noise
    has standard deviation :math:`\sigma C`.

    Arguments:
        simulation: ``"noiseless"`` trains without noise and without clipping; ``"noisy"`` trains
            as the mechanism does, with noise drawn by the adversary.
        ranking: ``"per-step"`` ranks dimensions by :math:`\sqrt{\sum_t (\theta_{t+1} -
            \theta_t)_d^2}`, ``"final-model"`` by :math:`|\theta_T - \theta_0|_d`.
        simulations: Number of simulated trainings. Noiseless simulations from a public start are
            identical, so only one is run.

    Example:
        >>> SimulatedDimension(ranking="final-model")
        SimulatedDimension(simulation='noiseless', ranking='final-model', simulations=4)
    """

    name = "simulated-dimension"
    paper = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-S"
    year = 2025
    canary = "gradient"

    simulation: Simulation = "noiseless"
    ranking: Ranking = "per-step"
    simulations: int = 4

    def __post_init__(self) -> None:
        _validate.one_of("simulation", self.simulation, ("noiseless", "noisy"))
        _validate.one_of("ranking", self.ranking, ("per-step", "final-model"))
        _validate.integer("simulations", self.simulations, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Take the dimensions that moved least; among equals, the first."""
        from dpaudit.engine.simulation import simulate

        parameter_count(mechanism, canaries=canaries)
        simulated = simulate(
            mechanism, noisy=self.simulation == "noisy", runs=self.simulations, seed=seed
        )
        moved = simulated.per_step if self.ranking == "per-step" else simulated.final
        order = moved.argsort(stable=True)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)
