"""One-shot estimation with all iterates: random directions, the best cosine of any step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import insertion_steps, released_sums
from dpaudit.adversaries.random_direction import RandomDirection
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
class OneShotIterates(StandardAdversary):
    r"""Inserts :math:`C u`, :math:`u` uniform on the sphere; scores by the largest cosine.

    The score is :math:`\max_t \cos(u, \theta_t - \theta_{t+1})` over the insertion steps. A maximum
    throws most steps away: it is made for clients that take part once, and a canary at every step
    is better found by a sum.

    See also: `RandomDirection`, the same canary with the final model alone (their Algorithm 2);
    the estimator ``gaussian-fit``, which fits a normal law to the scores as they do.

    Paper: Andrew et al., *One-shot empirical privacy estimation for federated learning* (ICLR
    2024; arXiv 2023), Algorithm 3.

    Example:
        >>> OneShotIterates().canary
        'gradient'
    """

    name: ClassVar[str] = "one-shot-iterates"
    paper: ClassVar[str] = "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 3"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        return RandomDirection().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """The largest cosine of each canary with the noisy sum of an insertion step."""
        import torch

        if not isinstance(canaries, CraftedGradients):
            raise InvalidInput(
                f"canaries must be CraftedGradients to be scored here, got "
                f"{type(canaries).__name__}"
            )
        directions = torch.nn.functional.normalize(canaries.gradients.to(view.iterates), dim=1)
        best = view.iterates.new_full((view.iterates.shape[1], canaries.count), -1.0)
        for step in insertion_steps(view):
            moved = torch.nn.functional.normalize(released_sums(view, [step]), dim=1)
            best = torch.maximum(best, moved @ directions.T)
        return best
