"""One-shot estimation with all iterates: random directions, scored by the largest cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import the_gradients
from dpaudit.adversaries.inversion import noisy_sums
from dpaudit.adversaries.random_direction import RandomDirection
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedGradients, StandardAdversary, StandardView


@final
@dataclass(frozen=True, kw_only=True)
class OneShotIterates(StandardAdversary):
    r"""Inserts :math:`C u`, :math:`u` uniform on the sphere, and scores by the largest cosine.

    The score is :math:`\max_t \cos(u, \theta_t - \theta_{t+1})` over the insertion steps. The
    maximum discards most steps. It suits clients that participate once; for a canary at every
    step a sum is better.

    See also: `RandomDirection`, the same canary with the final model only (their Algorithm 2);
    the estimator ``gaussian-fit``, which fits a normal distribution to the scores as they do.

    Paper: Andrew et al., *One-shot empirical privacy estimation for federated learning* (ICLR
    2024; arXiv 2023), Algorithm 3.

    Example:
        >>> OneShotIterates().canary
        'gradient'
    """

    name = "one-shot-iterates"
    paper = "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 3"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        return RandomDirection().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """The largest cosine of each canary with the noisy sum of an insertion step."""
        from torch.nn.functional import normalize

        directions = normalize(the_gradients(canaries).gradients.to(view.iterates), dim=1)
        best = view.iterates.new_full((view.iterates.shape[1], canaries.count), -1.0)
        for step, noisy in enumerate(noisy_sums(view)):
            if view.insertion.at(step):
                best = torch.maximum(best, normalize(noisy, dim=1) @ directions.T)
        return best
