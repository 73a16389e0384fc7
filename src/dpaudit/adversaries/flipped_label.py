"""A_L: a mislabelled data point, found again by its loss. The baseline that others must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import generator
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import (
    Canaries,
    CanaryPoints,
    HiddenStateAdversary,
    HiddenStateView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


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
    paper: ClassVar[str] = (
        "Nasr et al. (USENIX Security 2023): Algorithm 1; Cebere et al. (ICLR 2025): A_L"
    )
    year = 2023
    canary = "data point"

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
        from dpaudit.engine.evaluate import losses

        if not isinstance(canaries, CanaryPoints):
            raise InvalidInput(
                f"canaries must be CanaryPoints to be scored here, got {type(canaries).__name__}"
            )
        return -losses(view.mechanism, view.final, canaries.features, canaries.targets)
