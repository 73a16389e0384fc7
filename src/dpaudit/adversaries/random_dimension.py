"""A_GC-R: the gradient of a random axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import (
    check_room,
    generator,
    move_along_dimensions,
    parameter_count,
)
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class RandomDimension(HiddenStateAdversary):
    r"""Inserts :math:`C e_d` for a dimension :math:`d` drawn at random.

    The score is :math:`-(\theta_T - \theta_0)_d`; where the initialisation is unknown it is
    :math:`-(\theta_T)_d`. With many canaries every one has a dimension of its own.

    See also: `SimulatedDimension`, which chooses the dimension with more care.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Random
    Biased Dimension".

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = RandomDimension().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.count, canaries.norm
        (3, 1.0)
    """

    name: ClassVar[str] = "random-dimension"
    paper: ClassVar[str] = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-R"
    year = 2025
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct dimensions."""
        import torch

        parameters = parameter_count(mechanism)
        check_room(canaries, parameters)
        chosen = generator(seed).choice(parameters, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)
