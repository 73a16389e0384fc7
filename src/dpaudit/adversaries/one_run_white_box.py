"""The white-box auditor of one training run: many Dirac gradients, detected in the noisy sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import drawn_dimensions, released_along
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedDimensions, StandardAdversary, StandardView


@final
@dataclass(frozen=True, kw_only=True)
class OneRunWhiteBox(StandardAdversary):
    r"""Inserts a Dirac gradient for each canary and scores by its inner product with the sums.

    The score is :math:`\sum_t \langle C e_d, \frac{B}{\eta} (\theta_t - \theta_{t+1}) \rangle` over
    the insertion steps. Genuine gradients are not subtracted. With a canary at every step the sum
    telescopes to the score of `RandomDimension`, which needs no iterates.

    See also: `DiracGradient`, which subtracts genuine gradients; the bounds ``one-run`` and
    ``one-run-fdp``.

    Paper: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023),
    the DP-SGD auditor with ``audit-type = whitebox``, with Dirac canaries.

    Example:
        >>> OneRunWhiteBox().threat_model.value
        'standard'
    """

    name = "one-run-white-box"
    paper = "Steinke et al. (NeurIPS 2023): white box"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return released_along(view, canaries)
