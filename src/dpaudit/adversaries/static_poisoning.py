"""Static poisoning: an adversarial example, made on shadow models before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.poisoning import climb, drawn_points
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


def poison(
    mechanism: DPSGD, *, canaries: int, seed: int, shadows: int, steps: int, adversary: str
) -> CanaryPoints:
    """Training points moved to where models trained without them are most wrong."""
    from dpaudit.engine.evaluate import loss_slope
    from dpaudit.engine.simulation import simulate

    drawn = drawn_points(mechanism, canaries, seed, adversary=adversary)
    models = simulate(mechanism, noisy=True, runs=shadows, seed=seed).models
    slope = loss_slope(mechanism, models, drawn.targets)
    moved = climb(mechanism, drawn.features.to(models.dtype), slope, steps=steps, reach=1.0)
    return CanaryPoints(features=moved.to(drawn.features.dtype), targets=drawn.targets)


@final
@dataclass(frozen=True, kw_only=True)
class StaticPoisoning(BlackBoxAdversary):
    r"""Inserts a training point moved to where models trained without it are most wrong about it.

    The adversary trains shadow models of its own, and climbs their mean loss from a genuine point
    within the range of the data, label kept. The score is :math:`-\ell(\theta_T; x, y)`.

    See also: `IntermediatePoisoning`, the same point in the standard threat model;
    `FlippedLabel`, which moves the label in place of the point.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the static poisoning adversary.

    Arguments:
        shadows: How many shadow models to train, noise and clipping included.
        steps: How many steps to climb, one typical example's length in all.

    Example:
        >>> StaticPoisoning(shadows=2)
        StaticPoisoning(shadows=2, steps=20)
    """

    name: ClassVar[str] = "static-poisoning"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): static poisoning"
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

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses
