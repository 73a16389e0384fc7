"""A_CotS: a gradient on the sphere, found again by its cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import check_room, generator, movement, parameter_count
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import (
    Canaries,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class RandomDirection(HiddenStateAdversary):
    r"""Inserts :math:`C u` for a direction :math:`u` drawn uniformly from the sphere.

    The score is the cosine of :math:`u` with :math:`-(\theta_T - \theta_0)`; where the
    initialisation is unknown, with :math:`-\theta_T`. Directions of many canaries are independent,
    so nearly but not exactly orthogonal: each blurs the others a little, unlike canaries that have
    a dimension each. They are dense, so that ``canaries`` times the parameters must fit in memory.

    See also: `RandomDimension`.

    Paper: Andrew et al., *One-shot empirical privacy estimation* (ICLR 2024), in the form of
    Cebere, Bellet, Papernot (ICLR 2025), appendix: A_CotS.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training(clip_norm=2.0)
        >>> canaries = RandomDirection().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.gradients.norm(dim=1)
        tensor([2., 2., 2.])
    """

    name: ClassVar[str] = "random-direction"
    paper: ClassVar[str] = (
        "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 2; Cebere et al. (ICLR 2025): A_CotS"
    )
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        import torch

        parameters = parameter_count(mechanism)
        check_room(canaries, parameters)
        draws = generator(seed).standard_normal((canaries, parameters), dtype="float32")
        drawn = torch.from_numpy(draws)
        lengths = drawn.double().norm(dim=1, keepdim=True)
        return CraftedGradients(gradients=(mechanism.clip_norm * drawn / lengths).float())

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The cosine of each run's movement, turned round, with each canary."""
        import torch

        if not isinstance(canaries, CraftedGradients):
            raise InvalidInput(
                f"canaries must be CraftedGradients to be scored here, got "
                f"{type(canaries).__name__}"
            )
        moved = torch.nn.functional.normalize(movement(view), dim=1)
        gradients = canaries.gradients.to(moved.device, moved.dtype)
        return -moved @ torch.nn.functional.normalize(gradients, dim=1).T
