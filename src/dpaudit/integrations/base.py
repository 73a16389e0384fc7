"""What dpaudit needs to know about another library of private training."""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.trainings import GradientCanary


class Integration(abc.ABC):
    """One library, by the object that makes its private steps (the "optimizer" below).

    A method whose feature the library has no place for raises `InvalidInput` with the alternative;
    `unsupported` makes such an error.
    """

    name: ClassVar[str]
    """Name in the registry."""

    extra: ClassVar[str]
    """Optional dependency that installs the library: ``pip install 'dpaudit[extra]'``."""

    @abc.abstractmethod
    def recognises(self, source: Any) -> bool:
        """Whether an object belongs to this library. Must not import the library."""

    @abc.abstractmethod
    def canary_for(self, optimizer: Any, *, count: int = 1, seed: int = 0) -> GradientCanary:
        """Draw canaries for the parameters and the clip norm of an optimizer."""

    @abc.abstractmethod
    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        """Insert crafted gradients into every step that is made inside the context."""

    @abc.abstractmethod
    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        """Read the privacy claim from an optimizer, an accountant, or what holds one."""

    @abc.abstractmethod
    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        """A copy of the optimizer as ``private_step(gradients, seed)``."""

    @abc.abstractmethod
    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        """Check the private step of an optimizer against the rules of private training."""

    def unsupported(self, feature: str, alternative: str) -> InvalidInput:
        """The error for a feature that this library has no place for."""
        return InvalidInput(f"{self.name} does not support {feature}; {alternative}")
