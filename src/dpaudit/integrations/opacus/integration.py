"""Opacus in the registry of integrations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.integrations.base import Integration
from dpaudit.trainings import GradientCanary


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
        from dpaudit.integrations.opacus.canaries import canary_for

        return canary_for(optimizer, count=count, seed=seed)

    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        from dpaudit.integrations.opacus.inserting import insert_canary

        return insert_canary(optimizer, canary, inserted, seed=seed, **options)

    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        from dpaudit.integrations.opacus.claims import claim_of

        return claim_of(source, steps=steps)

    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        from dpaudit.integrations.opacus.step import OpacusStep

        return OpacusStep(optimizer)

    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        from dpaudit.integrations.opacus.step import check_optimizer

        return check_optimizer(optimizer, **options)
