"""Malicious data: training examples that leave some parameters entirely to the canary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from dpaudit.adversaries.crafting import (
    along,
    check_room,
    insertion_steps,
    parameter_count,
    released_sums,
)
from dpaudit.threat_models import (
    Canaries,
    ChoosesData,
    CraftedDimensions,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class MaliciousData(StandardAdversary, ChoosesData):
    r"""Trains on blank examples, and inserts :math:`C e_d` where they have no gradient.

    All features are 0, so that the weights they are multiplied with never have a genuine gradient:
    the noisy sum there is the canary and the noise alone. The score adds it up over the insertion
    steps, :math:`n` of them, and is normal with the accountant's own :math:`\mu = \sqrt n/\sigma`,
    whatever the model and the insertion period. Many canaries take a dimension each; those beyond
    the silent weights are no better than any other.

    See also: `GradientAttack`, for the data as it is.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the malicious data set. There learning
    rate and batches are the adversary's too; here they stay those of the mechanism, and so does
    the upper bound.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> float(abs(MaliciousData().prepare(training).data.features).max())
        0.0
    """

    name: ClassVar[str] = "malicious-data"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): malicious data set"
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
        """Take the dimensions that a noiseless simulation moved least: the silent ones."""
        from dpaudit.engine.simulation import simulate

        check_room(canaries, parameter_count(mechanism))
        order = simulate(mechanism, noisy=False, runs=1, seed=seed).per_step.argsort(stable=True)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return along(canaries, released_sums(view, insertion_steps(view)))
