"""Malicious data: blank training examples, which leave some parameters to the canary alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import parameter_count, released_along
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import (
    Canaries,
    ChoosesData,
    CraftedDimensions,
    StandardAdversary,
    StandardView,
)


@final
@dataclass(frozen=True, kw_only=True)
class MaliciousData(StandardAdversary, ChoosesData):
    r"""Trains on blank examples and inserts :math:`C e_d` where they have no gradient.

    All features are 0, so the weights that multiply them have no genuine gradient: the noisy sum
    there is the canary plus the noise. The score adds this up over the :math:`n` insertion steps.
    It is normal with the accountant's :math:`\mu = \sqrt n/\sigma` for every model and insertion
    period. Several canaries take a dimension each; those beyond the weights without a gradient
    have no advantage.

    See also: `GradientAttack`, for the unchanged data.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the malicious data set. There the
    adversary also chooses learning rate and batches; here they stay those of the mechanism, and so
    does the upper bound.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> float(abs(MaliciousData().prepare(training).data.features).max())
        0.0
    """

    name = "malicious-data"
    paper = "Nasr et al. (S&P 2021): malicious data set"
    year = 2021
    canary = "gradient"

    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training on blank examples."""
        data = mechanism.data
        blank = replace(data, features=np.zeros_like(data.features), name=f"blank {data.name}")
        return replace(mechanism, data=blank)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Take the dimensions that a noiseless simulation moved least."""
        from dpaudit.engine.simulation import simulate

        parameter_count(mechanism, canaries=canaries)
        order = simulate(mechanism, noisy=False, runs=1, seed=seed).per_step.argsort(stable=True)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return released_along(view, canaries)
