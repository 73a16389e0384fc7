"""Intermediate poisoning: the static poison, evaluated on every iterate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.poisoning import ShadowPoisoning
from dpaudit.threat_models import Canaries, StandardAdversary, StandardView


@final
@dataclass(frozen=True, kw_only=True)
class IntermediatePoisoning(ShadowPoisoning, StandardAdversary):
    r"""Inserts the point of `StaticPoisoning` and averages its loss over all later iterates.

    The score is :math:`-\frac1T \sum_{t=1}^T \ell(\theta_t; x, y)`.

    See also: `StaticPoisoning`; `AdaptivePoisoning`, which moves the point at every step.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the intermediate poisoning adversary.
    Cebere, Bellet, Papernot (ICLR 2025) count it as a hidden-state adversary. It reads the loss of
    intermediate models, so here it belongs to the standard threat model.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.

    Example:
        >>> IntermediatePoisoning().threat_model.value
        'standard'
    """

    name = "intermediate-poisoning"
    paper = "Nasr et al. (S&P 2021): intermediate poisoning"

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Minus the mean loss over the iterates, without the start."""
        from dpaudit.engine.evaluate import losses

        points, later = the_points(canaries), view.iterates[1:]
        found = losses(view.mechanism, later.flatten(0, 1), points.features, points.targets)
        return -found.view(*later.shape[:2], points.count).mean(0)
