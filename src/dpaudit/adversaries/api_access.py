"""API access: an ordinary training example, detected by its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import drawn_points, the_points
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints


@final
@dataclass(frozen=True, kw_only=True)
class ApiAccess(BlackBoxAdversary):
    r"""Inserts another copy of a training example and scores by minus its loss.

    The weakest adversary: it crafts nothing and sees no parameters. The score is
    :math:`-\ell(\theta_T; x, y)`.

    See also: `FlippedLabel`, whose example has a wrong label.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the API access adversary: a natural
    example, and a threshold on the loss.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> ApiAccess().craft(training, Insertion(), canaries=2, seed=0).features.shape
        torch.Size([2, 8])
    """

    name = "api-access"
    paper = "Nasr et al. (S&P 2021): API access"
    year = 2021
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training examples."""
        return drawn_points(mechanism, canaries, seed)

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses
