"""Static poisoning: an adversarial example, made with shadow models before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.poisoning import ShadowPoisoning
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints


@final
@dataclass(frozen=True, kw_only=True)
class StaticPoisoning(ShadowPoisoning, BlackBoxAdversary):
    r"""Inserts a training example moved to where models trained without it have a large loss.

    The adversary trains shadow models and increases their mean loss by gradient ascent from a
    training example, within the range of the data and with its label. The score is
    :math:`-\ell(\theta_T; x, y)`.

    See also: `IntermediatePoisoning`, the same point in the standard threat model;
    `FlippedLabel`, which changes the label instead of the features.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the static poisoning adversary.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.

    Example:
        >>> StaticPoisoning(shadows=2)
        StaticPoisoning(shadows=2, steps=20)
    """

    name = "static-poisoning"
    paper = "Nasr et al. (S&P 2021): static poisoning"

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses
