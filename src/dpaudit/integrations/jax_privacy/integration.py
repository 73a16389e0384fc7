"""jax-privacy in the registry of integrations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.integrations.base import Integration
from dpaudit.trainings import GradientCanary


@final
class JaxPrivacyIntegration(Integration):
    """jax-privacy 2: execution plans, their configurations, and privacy parameters."""

    name: ClassVar[str] = "jax-privacy"
    extra: ClassVar[str] = "jax-privacy"

    def recognises(self, source: Any) -> bool:
        return type(source).__module__.partition(".")[0] == "jax_privacy"

    def canary_for(self, optimizer: Any, *, count: int = 1, seed: int = 0) -> GradientCanary:
        raise self.unsupported(
            "canaries without the parameters",
            "use dpaudit.integrations.jax_privacy.canary_for(parameters, clip_norm=...)",
        )

    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        raise self.unsupported(
            "insertion from outside",
            "use dpaudit.integrations.jax_privacy.insert_canary(canary) in place of clipped_grad",
        )

    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        from dpaudit.integrations.jax_privacy.claims import claim_of

        return claim_of(source, steps=steps)

    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        from dpaudit.integrations.jax_privacy.step import private_step

        return private_step(optimizer)

    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        from dpaudit.integrations.jax_privacy.step import check

        return check(optimizer, **options)
