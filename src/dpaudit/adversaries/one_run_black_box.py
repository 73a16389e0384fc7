"""The black-box auditor of one training run: mislabelled examples and the change of their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.flipped_label import FlippedLabel
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints


@final
@dataclass(frozen=True, kw_only=True)
class OneRunBlackBox(BlackBoxAdversary):
    r"""Inserts mislabelled training examples and scores by how much training lowered their loss.

    The score is :math:`\ell(\theta_0; x) - \ell(\theta_T; x)`, which makes canaries of different
    difficulty comparable. If the start is not public, it is :math:`-\ell(\theta_T; x)`.

    See also: `FlippedLabel`, which does not use the loss at the start; the bounds ``one-run`` and
    ``one-run-fdp``, which are made for many canaries in one run.

    Paper: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023),
    the DP-SGD auditor with ``audit-type = blackbox``.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> OneRunBlackBox().craft(training, Insertion(), canaries=100, seed=0).count
        100
    """

    name = "one-run-black-box"
    paper = "Steinke et al. (NeurIPS 2023): black box"
    year = 2023
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Different training examples, each with a wrong label."""
        return FlippedLabel().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """How much training lowered the loss of each canary."""
        return -view.losses if view.initial_losses is None else view.initial_losses - view.losses
