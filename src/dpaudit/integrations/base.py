"""What dpaudit needs to know about another library of private training.

`Integration` is what a library is for dpaudit. Below it is what all of them share: the history of
an accountant as a claim, that is, groups of equal steps of DP-SGD, composed.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dpaudit import _validate
from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.trainings import GradientCanary
from dpaudit.upper_bounds import NoisySteps, composed_profile


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


History = Sequence[tuple[float, float, int]]
"""Groups of (noise multiplier, sampling rate, number of steps)."""


def curve_of(history: History, description: str) -> Claim:
    """The trade-off function of the steps, in closed form if none is sampled."""
    parts = [_described(*group) for group in history]
    if not any(part.subsampled for part in parts):
        squared = sum(part.mu**2 for part in parts)
        return Claim(description=description, mu=math.sqrt(squared), mechanism=True)
    if len(history) == 1:
        ((noise, rate, steps),) = history
        claim = Claim.from_dpsgd(noise_multiplier=noise, steps=steps, sampling_rate=rate)
        return replace(claim, description=description)
    epsilons = np.concatenate([np.linspace(0, 4, 81), np.linspace(4.25, 40, 144)])
    deltas = composed_profile(parts, epsilons=epsilons)
    return Claim(
        description=description,
        epsilons=tuple(epsilons.tolist()),
        deltas=tuple(np.clip(deltas, 0.0, 1.0).tolist()),
        mechanism=True,
        settings={"history": [list(group) for group in history]},
    )


def in_words(history: History) -> str:
    """The first three groups in words."""
    return "; ".join(map(_words, history[:3])) + ("; ..." if len(history) > 3 else "")


def merged(history: History) -> History:
    """Equal steps counted together; the order does not matter."""
    counts: dict[tuple[float, float], int] = {}
    for noise, rate, steps in history:
        _validate.positive(
            "noise_multiplier in the accountant's history",
            float(noise),
            remedy="without noise there is no claim to test",
        )
        counts[noise, rate] = counts.get((noise, rate), 0) + steps
    return [(noise, rate, steps) for (noise, rate), steps in counts.items()]


def _words(group: tuple[float, float, int]) -> str:
    noise, rate, steps = group
    sampled = f", Poisson sampling rate {rate:g}" if rate < 1 else ""
    return (
        f"DP-SGD with noise multiplier {noise:g}, {steps} step{'' if steps == 1 else 's'}{sampled}"
    )


def _described(noise_multiplier: float, rate: float, steps: int) -> NoisySteps:
    return NoisySteps(
        noise_multiplier=float(noise_multiplier),
        steps=int(steps),
        sampling_rate=None if rate >= 1 else float(rate),
    )
