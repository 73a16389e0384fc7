"""A skeleton to copy: an adversary of your own, checked by the contract that ours must keep.

    python examples/my_adversary.py

This one spreads its gradient over several random dimensions and looks for it in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from dpaudit import DPSGD, Insertion, audit
from dpaudit.adversaries import Canaries, CraftedGradients, HiddenStateAdversary, HiddenStateView
from dpaudit.adversaries.crafting import check_room, generator, movement, parameter_count
from dpaudit.errors import InvalidInput
from dpaudit.testing import check_adversary, easy_training


@final
@dataclass(frozen=True, kw_only=True)
class SpreadGradient(HiddenStateAdversary):
    """Inserts C / sqrt(width) in ``width`` random dimensions; scores by the inner product.

    1. Settings are fields of a frozen dataclass: they are stored with the audit.
    """

    name: ClassVar[str] = "spread-gradient"
    paper: ClassVar[str] = "none: an example"

    width: int = 4

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidInput(f"width must be at least 1, got {self.width}")

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """2. Before training: canaries from public knowledge, the same for the same seed."""
        parameters = parameter_count(mechanism)
        check_room(canaries * self.width, parameters)
        chosen = generator(seed).choice(parameters, size=(canaries, self.width), replace=False)
        gradients = torch.zeros(canaries, parameters)
        height = mechanism.clip_norm / self.width**0.5  # norm C, and no longer
        gradients.scatter_(1, torch.from_numpy(chosen), height)
        return CraftedGradients(gradients=gradients)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """3. After training: one number for each (run, canary); higher means "inserted"."""
        if not isinstance(canaries, CraftedGradients):
            raise InvalidInput(f"canaries must be CraftedGradients, got {type(canaries).__name__}")
        return -movement(view) @ canaries.gradients.to(view.final).T


def main() -> None:
    check_adversary(SpreadGradient())  # 4. AssertionError, with the reason, if a rule is broken
    result = audit(easy_training(noise_multiplier=1.0), SpreadGradient(width=3), runs=1000)
    print(result.summary())


if __name__ == "__main__":
    main()
