"""The one-run auditor of the white box: many Dirac gradients, found in the noisy sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import along, insertion_steps, released_sums
from dpaudit.adversaries.random_dimension import RandomDimension
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class OneRunWhiteBox(StandardAdversary):
    r"""Inserts a Dirac gradient for each canary; scores by its inner product with the noisy sums.

    The score is :math:`\sum_t \langle C e_d, \frac{B}{\eta} (\theta_t - \theta_{t+1}) \rangle` over
    the insertion steps. Genuine gradients are left in. With a canary at every step the sum
    telescopes: it is then the score of `RandomDimension`, and needs no iterate.

    See also: `DiracGradient`, which takes genuine gradients off; the bounds ``one-run`` and
    ``one-run-fdp``.

    Paper: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023),
    the DP-SGD auditor with ``audit-type = whitebox``, with Dirac canaries.

    Example:
        >>> OneRunWhiteBox().threat_model.value
        'standard'
    """

    name: ClassVar[str] = "one-run-white-box"
    paper: ClassVar[str] = "Steinke et al. (NeurIPS 2023): white box"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct dimensions."""
        return RandomDimension().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return along(canaries, released_sums(view, insertion_steps(view)))
