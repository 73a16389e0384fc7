"""Intermediate poisoning: a static poison, looked for in every model on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.static_poisoning import poison
from dpaudit.threat_models import Canaries, CanaryPoints, StandardAdversary, StandardView

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class IntermediatePoisoning(StandardAdversary):
    r"""Inserts the point of `StaticPoisoning`, and averages its loss over all later iterates.

    The score is :math:`-\frac1T \sum_{t=1}^T \ell(\theta_t; x, y)`.

    See also: `StaticPoisoning`; `AdaptivePoisoning`, which moves the point at every step.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the intermediate poisoning adversary.
    Cebere, Bellet, Papernot (ICLR 2025) list it as fit for the hidden state; as it reads the loss
    of intermediate models, we have it in the standard threat model.

    Arguments:
        shadows: How many shadow models to train.
        steps: How many steps to climb.

    Example:
        >>> IntermediatePoisoning().threat_model.value
        'standard'
    """

    name: ClassVar[str] = "intermediate-poisoning"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): intermediate poisoning"
    year = 2021
    canary = "data point"

    shadows: int = 4
    steps: int = 20

    def __post_init__(self) -> None:
        _validate.integer("shadows", self.shadows, at_least=1)
        _validate.integer("steps", self.steps, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Climb the mean loss of the shadow models."""
        return poison(
            mechanism,
            canaries=canaries,
            seed=seed,
            shadows=self.shadows,
            steps=self.steps,
            adversary=self.name,
        )

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Minus the mean loss over the iterates, the start left out."""
        from dpaudit.engine.evaluate import losses

        points, later = the_points(canaries), view.iterates[1:]
        found = losses(view.mechanism, later.flatten(0, 1), points.features, points.targets)
        return -found.view(*later.shape[:2], points.count).mean(0)
