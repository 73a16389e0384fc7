"""A Dirac gradient, found in the noisy sums themselves: tight whatever the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import (
    along,
    check_room,
    generator,
    insertion_steps,
    parameter_count,
    released_sums,
)
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
class DiracGradient(StandardAdversary):
    r"""Inserts :math:`C e_d`, and looks for it in the noisy sum of every insertion step.

    The iterates and the batches are public, so that the genuine part of each sum can be computed
    and taken off; what is left is the canary and the noise. The score adds it up over the
    :math:`n` insertion steps, and is normal with the accountant's own :math:`\mu = \sqrt n/\sigma`,
    whatever the model, the data and the insertion period.

    See also: `OneRunWhiteBox`, which leaves the genuine part in; `RandomDimension`, the same canary
    in the hidden state.

    Paper: Nasr et al., *Tight auditing of differentially private machine learning* (USENIX
    Security 2023), Algorithm 2, with its Dirac canary. There each step has a coin of its own and
    the audits of single steps are composed; here a run has one coin and the steps add up.

    Arguments:
        subtract: Take the genuine part off. It costs as much as the training. Without it, and with
            a canary at every step, the sum telescopes to :math:`\theta_0 - \theta_T`: the iterates
            then tell nothing that the final model does not.

    Example:
        >>> DiracGradient().threat_model.value
        'standard'
    """

    name: ClassVar[str] = "dirac-gradient"
    paper: ClassVar[str] = "Nasr et al. (USENIX Security 2023): Algorithm 2"
    year = 2023
    canary = "gradient"

    subtract: bool = True

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct dimensions."""
        import torch

        parameters = parameter_count(mechanism)
        check_room(canaries, parameters)
        chosen = generator(seed).choice(parameters, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with what the insertion steps released, genuine gradients taken off."""
        from dpaudit.engine.evaluate import genuine_sum

        steps = insertion_steps(view)
        sums = released_sums(view, steps)
        if self.subtract:
            sums = sums - genuine_sum(view.mechanism, view.iterates, steps)
        return along(canaries, sums)
