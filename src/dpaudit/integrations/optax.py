"""Audit a training with the private aggregation of optax.

``optax.contrib.differentially_private_aggregate`` takes per-example gradients, which are a value in
the user's own code: `append_rows` appends the canaries to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit.checks import CheckResult
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.base import Integration
from dpaudit.integrations.histories import curve_of, in_words, merged
from dpaudit.integrations.trees import append_rows, canary_for, imported, record_gradient
from dpaudit.trainings import GradientCanary

__all__ = ["OptaxIntegration", "append_rows", "canary_for", "claim_of", "record_gradient"]


def claim_of(optimizer: Any, *, steps: int, sampling_rate: float | None = None) -> Claim:
    """The claim of a training with ``differentially_private_aggregate``, alone or in a chain.

    Optax has no accountant: the number of steps and the sampling rate must be given. It divides by
    the number of rows, so with Poisson sampling pad batches to a fixed size.

    Arguments:
        optimizer: The gradient transformation.
        steps: Number of steps.
        sampling_rate: Probability with which a step uses an example; every step uses it by default.

    Example:
        >>> import jax, optax
        >>> private = optax.contrib.differentially_private_aggregate(1.0, 4.0, jax.random.key(0))
        >>> claim_of(optax.chain(private, optax.sgd(0.1)), steps=16)
        Claim(DP-SGD with noise multiplier 4, 16 steps)
    """
    settings = _settings(optimizer)
    history = merged(
        [
            (
                float(settings["noise_multiplier"]),
                1.0 if sampling_rate is None else float(sampling_rate),
                _validate.integer("steps", steps, at_least=1),
            )
        ]
    )
    return curve_of(history, in_words(history))


def _settings(optimizer: Any) -> dict[str, Any]:
    """The clip norm and the noise multiplier, which optax keeps in closures only."""
    found = _private_update(getattr(optimizer, "update", None))
    if found is None:
        raise InvalidInput(
            "optimizer must contain optax.contrib.differentially_private_aggregate or dpsgd; got "
            f"{type(optimizer).__name__} without it. Use Claim.from_dpsgd(noise_multiplier=..., "
            "steps=...)"
        )
    inside = inspect.getclosurevars(found).nonlocals
    clip_norm = float(inside["l2_norm_clip"])
    return {
        "clip_norm": clip_norm,
        "noise_multiplier": float(inside["noise_std"]) / clip_norm,
        "update": found,
    }


def _private_update(function: Any) -> Any:
    """The update of the private aggregation, looked for in the closures of a chain."""
    if not inspect.isfunction(function):
        return None
    inside = inspect.getclosurevars(function).nonlocals
    if {"l2_norm_clip", "noise_std"} <= inside.keys():
        return function
    for value in inside.values():
        for inner in value if isinstance(value, list | tuple) else [value]:
            found = _private_update(getattr(inner, "update", inner))
            if found is not None:
                return found
    return None


@final
class OptaxIntegration(Integration):
    """Gradient transformations of optax that contain the private aggregation."""

    name: ClassVar[str] = "optax"
    extra: ClassVar[str] = "jax"

    def recognises(self, source: Any) -> bool:
        return _private_update(getattr(source, "update", None)) is not None

    def canary_for(self, optimizer: Any, *, count: int = 1, seed: int = 0) -> GradientCanary:
        raise self.unsupported(
            "canaries without the parameters",
            "use dpaudit.integrations.optax.canary_for(parameters, clip_norm=...)",
        )

    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        raise self.unsupported(
            "insertion from outside", "call append_rows(gradients, canary, present) in your step"
        )

    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        if steps is None:
            raise InvalidInput("steps must be given: optax does not count steps; got None")
        return claim_of(source, steps=steps)

    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        jax = imported("jax")
        update = jax.jit(_settings(optimizer)["update"])

        def step(gradients: Any, seed: int) -> Any:
            state = imported("optax").contrib.DifferentiallyPrivateAggregateState(
                rng_key=jax.random.key(seed)
            )
            with np.errstate(over="ignore"):
                rows = jax.numpy.asarray(np.asarray(gradients).astype(np.float32))
            return np.asarray(update([rows], state)[0][0], dtype=np.float64)

        return step

    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        from dpaudit.checks import check_step

        settings = _settings(optimizer)
        own = {name: settings[name] for name in ("clip_norm", "noise_multiplier")}
        given = {name: value for name, value in options.items() if value is not None}
        return check_step(self.private_step(optimizer), **{"parameters": 64, **own, **given})
