"""API access: an ordinary data point, found again by its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.adversaries.crafting import check_points, generator, the_points
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class ApiAccess(BlackBoxAdversary):
    r"""Inserts one more copy of a training point as it is, and asks the final model for its loss.

    The weakest adversary there is: it crafts nothing and sees no parameter. The score is
    :math:`-\ell(\theta_T; x, y)`.

    See also: `FlippedLabel`, whose point stands out.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the API access adversary: a natural
    example, and a threshold on the loss.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> ApiAccess().craft(training, Insertion(), canaries=2, seed=0).features.shape
        torch.Size([2, 8])
    """

    name: ClassVar[str] = "api-access"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): API access"
    year = 2021
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training points."""
        import torch

        data = mechanism.data
        check_points(canaries, len(data))
        chosen = generator(seed).choice(len(data), size=canaries, replace=False)
        return CanaryPoints(
            features=torch.from_numpy(data.features[chosen]),
            targets=torch.from_numpy(data.targets[chosen]),
        )

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses
