"""A Dirac gradient detected in the noisy sums: tight for every model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import (
    along,
    drawn_dimensions,
    released_along,
    released_sums,
    step_weights,
)
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedDimensions, StandardAdversary, StandardView


@final
@dataclass(frozen=True, kw_only=True)
class DiracGradient(StandardAdversary):
    r"""Inserts :math:`C e_d` and looks for it in the noisy sum of every insertion step.

    The iterates and the batches are public, so the genuine part of each sum is computed and
    subtracted; the canary and the noise remain. The score adds this up over the :math:`n` insertion
    steps. It is normal with the accountant's :math:`\mu = \sqrt n/\sigma` for every model, data
    set and insertion period, with any momentum and schedule. Adam shows each sum only up to a
    factor (see `dpaudit.adversaries.inversion`), which costs little after the first steps.

    See also: `OneRunWhiteBox`, which does not subtract the genuine part; `RandomDimension`, the
    same canary in the hidden state threat model.

    Paper: Nasr et al., *Tight auditing of differentially private machine learning* (USENIX
    Security 2023), Algorithm 2, with its Dirac canary. There each step has its own coin and the
    audits of single steps are composed; here a run has one coin and the steps add up.

    Arguments:
        subtract: Whether to subtract the genuine part, which costs as much as the training.
            Without it, and with a canary at every step, the sum telescopes to
            :math:`\theta_0 - \theta_T`: the iterates then show no more than the final model.

    Example:
        >>> DiracGradient().threat_model.value
        'standard'
    """

    name = "dirac-gradient"
    paper = "Nasr et al. (USENIX Security 2023): Algorithm 2"
    year = 2023
    canary = "gradient"

    subtract: bool = True

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps, less the genuine part."""
        from dpaudit.engine.evaluate import GenuineSums

        if not self.subtract:
            return released_along(view, canaries)
        weights, genuine = step_weights(view), GenuineSums(view.mechanism, view.iterates)
        return along(canaries, released_sums(view, weights, genuine) - genuine.total(weights))
