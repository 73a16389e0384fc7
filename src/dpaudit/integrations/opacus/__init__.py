"""Audit and check a training with Opacus, without changing it.

`canary_for` draws crafted gradients that fit an optimizer, `insert_canary` inserts them into the
user's own loop, `claim_of` reads the accountant's claim, `check_optimizer` checks the private step.

- ``canaries``: how a canary enters a step, in which steps it takes part, and what is refused.
- ``claims``: the accountant's history as a claim.
- ``step``: the optimizer as a private step under check, and ghost clipping.
- ``optimizer``: what is read of a ``DPOptimizer``, and how its methods are replaced for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.integrations.base import Integration
from dpaudit.integrations.opacus.canaries import canary_for, insert_canary
from dpaudit.integrations.opacus.claims import claim_of
from dpaudit.integrations.opacus.step import OpacusStep, check_optimizer
from dpaudit.trainings import GradientCanary

__all__ = [
    "OpacusIntegration",
    "OpacusStep",
    "canary_for",
    "check_optimizer",
    "claim_of",
    "insert_canary",
]


@final
class OpacusIntegration(Integration):
    """Opacus: ``DPOptimizer`` and its variants, ``PrivacyEngine``, and the accountants.

    Classes are recognised by the names of their modules and by their attributes, so that forks and
    subclasses are recognised too.
    """

    name: ClassVar[str] = "opacus"
    extra: ClassVar[str] = "opacus"

    def recognises(self, source: Any) -> bool:
        modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
        return "opacus" in modules or (
            hasattr(source, "original_optimizer") and hasattr(source, "max_grad_norm")
        )

    def canary_for(self, optimizer: Any, *, count: int = 1, seed: int = 0) -> GradientCanary:
        return canary_for(optimizer, count=count, seed=seed)

    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        return insert_canary(optimizer, canary, inserted, seed=seed, **options)

    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        return claim_of(source, steps=steps)

    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        return OpacusStep(optimizer)

    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        return check_optimizer(optimizer, **options)
