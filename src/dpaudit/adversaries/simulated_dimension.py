"""A_GC-S: the gradient of the axis that training itself leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import check_room, move_along_dimensions, parameter_count
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion

Simulation = Literal["noiseless", "noisy"]
Ranking = Literal["per-step", "final-model"]


@final
@dataclass(frozen=True, kw_only=True)
class SimulatedDimension(HiddenStateAdversary):
    r"""Simulates the training, and inserts :math:`C e_d` in the dimension that moved least.

    Genuine gradients then neither wash the canary's trace away nor blur it. The score is
    :math:`-(\theta_T - \theta_0)_d`; where the initialisation is unknown it is
    :math:`-(\theta_T)_d`, and simulations start from models of the adversary's own. With many
    canaries they take the least-moved dimensions, one each.

    See also: `RandomDimension`, which is as good where there are far more parameters than examples
    in a batch.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Simulated
    Biased Dimension", with its slips put right: movements add up over the simulations, and noise
    has standard deviation :math:`\sigma C`.

    Arguments:
        simulation: ``"noiseless"`` trains without noise and without clipping, ``"noisy"`` as the
            mechanism does, with noise of the adversary's own.
        ranking: ``"per-step"`` ranks dimensions by :math:`\sqrt{\sum_t (\theta_{t+1} -
            \theta_t)_d^2}`, ``"final-model"`` by :math:`|\theta_T - \theta_0|_d`.
        simulations: How many trainings to simulate. Noiseless ones from a known start are all the
            same, so that one is played.

    Example:
        >>> SimulatedDimension(ranking="final-model")
        SimulatedDimension(simulation='noiseless', ranking='final-model', simulations=4)
    """

    name: ClassVar[str] = "simulated-dimension"
    paper: ClassVar[str] = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-S"
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
        """Take the dimensions that moved least; of equals, the first."""
        from dpaudit.engine.simulation import simulate

        check_room(canaries, parameter_count(mechanism))
        simulated = simulate(
            mechanism, noisy=self.simulation == "noisy", runs=self.simulations, seed=seed
        )
        moved = simulated.per_step if self.ranking == "per-step" else simulated.final
        order = moved.argsort(stable=True)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)
