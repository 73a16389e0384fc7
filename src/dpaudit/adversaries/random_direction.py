"""A_CotS: a random direction on the sphere, detected by its cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import generator, movement, parameter_count, the_gradients
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedGradients, HiddenStateAdversary, HiddenStateView


@final
@dataclass(frozen=True, kw_only=True)
class RandomDirection(HiddenStateAdversary):
    r"""Inserts :math:`C u` for a direction :math:`u` drawn uniformly from the sphere.

    The score is the cosine of :math:`u` with :math:`-(\theta_T - \theta_0)`, or with
    :math:`-\theta_T` if the initialisation is not public. The directions of several canaries are
    independent and therefore only nearly orthogonal: they disturb each other a little. They are
    dense: ``canaries`` times the parameters must fit in memory.

    See also: `RandomDimension`.

    Paper: Andrew et al., *One-shot empirical privacy estimation* (ICLR 2024), in the form of
    Cebere, Bellet, Papernot (ICLR 2025), appendix: A_CotS.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training(clip_norm=2.0)
        >>> canaries = RandomDirection().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.gradients.norm(dim=1)
        tensor([2., 2., 2.])
    """

    name = "random-direction"
    paper = "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 2; Cebere et al. (ICLR 2025): A_CotS"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        parameters = parameter_count(mechanism, canaries=canaries)
        draws = generator(seed).standard_normal((canaries, parameters), dtype="float32")
        drawn = torch.from_numpy(draws)
        lengths = drawn.double().norm(dim=1, keepdim=True)
        return CraftedGradients(gradients=(mechanism.clip_norm * drawn / lengths).float())

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The cosine of each run's negative movement with each canary."""
        from torch.nn.functional import normalize

        moved = normalize(movement(view), dim=1)
        return -moved @ normalize(the_gradients(canaries).gradients.to(moved), dim=1).T
