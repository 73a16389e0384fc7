"""A_GC-R: a gradient along a random axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import drawn_dimensions, move_along_dimensions
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedDimensions, HiddenStateAdversary, HiddenStateView


@final
@dataclass(frozen=True, kw_only=True)
class RandomDimension(HiddenStateAdversary):
    r"""Inserts :math:`C e_d` for a random dimension :math:`d`.

    The score is :math:`-(\theta_T - \theta_0)_d`, or :math:`-(\theta_T)_d` if the initialisation is
    not public. Every canary has its own dimension.

    See also: `SimulatedDimension`, which chooses the dimension by simulation.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Random
    Biased Dimension".

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = RandomDimension().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.count, canaries.norm
        (3, 1.0)
    """

    name = "random-dimension"
    paper = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-R"
    year = 2025
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)
