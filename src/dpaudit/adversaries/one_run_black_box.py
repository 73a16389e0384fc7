"""The one-run auditor of the black box: wrong labels, and what training took off their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.flipped_label import FlippedLabel
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class OneRunBlackBox(BlackBoxAdversary):
    r"""Inserts mislabelled training points; scores by the loss before less the loss after training.

    The score is :math:`\ell(\theta_0; x) - \ell(\theta_T; x)`, which makes canaries of different
    difficulty comparable; where the start is unknown, :math:`-\ell(\theta_T; x)`.

    See also: `FlippedLabel`, the same point without the loss at the start; the bounds ``one-run``
    and ``one-run-fdp``, which many canaries in one run are made for.

    Paper: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023),
    the DP-SGD auditor with ``audit-type = blackbox``.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> OneRunBlackBox().craft(training, Insertion(), canaries=100, seed=0).count
        100
    """

    name: ClassVar[str] = "one-run-black-box"
    paper: ClassVar[str] = "Steinke et al. (NeurIPS 2023): black box"
    year = 2023
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Different training points, each under a wrong label."""
        return FlippedLabel().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """What training took off the loss of each canary."""
        return -view.losses if view.initial_losses is None else view.initial_losses - view.losses
