"""A_L: a mislabelled data point, found again by its loss. The baseline that others must beat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.contract import (
    Canaries,
    CanaryPoints,
    HiddenStateAdversary,
    HiddenStateView,
)
from dpaudit.adversaries.crafting import generator
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion

_TOGETHER = 4096  # (run, canary) pairs evaluated at once: bounds memory, changes nothing else


@final
@dataclass(frozen=True, kw_only=True)
class FlippedLabel(HiddenStateAdversary):
    r"""Inserts a training point with a wrong label as one more data point.

    The score is minus the loss of the final model on it, and needs no initialisation. The point is
    drawn at random, and so is its wrong label where there are more than two classes. Many
    canaries are many different points.

    See also: `RandomDimension`, which need not rely on the model's own gradient of a point.

    Paper: the loss-based adversary of Nasr et al., *Adversary instantiation* (S&P 2021); A_L in
    Cebere, Bellet, Papernot (ICLR 2025), section 5.1.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = FlippedLabel().craft(training, Insertion(), canaries=2, seed=0)
        >>> tuple(canaries.features.shape)
        (2, 8)
    """

    name: ClassVar[str] = "flipped-label"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021); Cebere et al. (ICLR 2025): A_L"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training points, and a wrong label for each."""
        import torch

        data, random = mechanism.data, generator(seed)
        _validate.integer("canaries", canaries, at_least=1)
        if canaries > len(data):
            raise InvalidInput(
                f"canaries must be at most the number of examples ({len(data)}), got {canaries}"
            )
        chosen = random.choice(len(data), size=canaries, replace=False)
        shift = random.integers(1, data.classes, size=canaries)
        return CanaryPoints(
            features=torch.from_numpy(data.features[chosen]),
            targets=torch.from_numpy((data.targets[chosen] + shift) % data.classes),
        )

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        import torch

        if not isinstance(canaries, CanaryPoints):
            raise InvalidInput(
                f"canaries must be CanaryPoints to be scored here, got {type(canaries).__name__}"
            )
        of_all_runs = torch.vmap(_losses(view, canaries))
        together = max(1, _TOGETHER // canaries.count)
        with torch.no_grad():
            return -torch.cat([of_all_runs(some) for some in torch.split(view.final, together)])


def _losses(
    view: HiddenStateView, canaries: CanaryPoints
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from the flat parameters of a run to its losses on the canaries."""
    import torch

    from dpaudit.games.starting_points import known_model

    mechanism, device, dtype = view.mechanism, view.final.device, view.final.dtype
    model = known_model(mechanism).to(device, dtype)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sizes = [parameter.numel() for parameter in trained.values()]
    features, targets = canaries.features.to(device), canaries.targets.to(device)
    features = features.to(dtype) if features.is_floating_point() else features

    def losses(flat: torch.Tensor) -> torch.Tensor:
        pieces = torch.split(flat, sizes)
        given = {
            name: piece.view_as(parameter)
            for piece, (name, parameter) in zip(pieces, trained.items(), strict=True)
        }
        return mechanism.loss(torch.func.functional_call(model, given, (features,)), targets)

    return losses
