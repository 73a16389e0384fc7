"""Canaries as JAX pytrees, and the private aggregation of optax.

A flat crafted gradient takes the structure of the parameters (`rows_like`).
``optax.contrib.differentially_private_aggregate`` takes per-example gradients, which are a value in
the user's own code: `append_rows` appends the canaries to them. With jax-privacy, which forms no
such value, a canary is one more example: see `dpaudit.integrations.jax_privacy`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit.checks import CheckResult, check_step
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.integrations.base import Integration, curve_of, in_words, merged
from dpaudit.trainings import GradientCanary
from dpaudit.trainings.scoring import PrivateGradients


def canary_for(
    parameters: Any, *, clip_norm: float, count: int = 1, seed: int = 0
) -> GradientCanary:
    """Draw canaries for a pytree of parameters.

    Arguments:
        parameters: The parameters, or a number of them.
        clip_norm: C, the norm that the training claims to clip to.
        count: Number of canaries, each on an axis of its own.
        seed: Random seed of the axes.

    Example:
        >>> canary_for({"weight": np.zeros((3, 2)), "bias": np.zeros(2)}, clip_norm=1.0).parameters
        8
    """
    size = parameters if isinstance(parameters, int) else _size(parameters)
    return GradientCanary.draw(size, clip_norm=clip_norm, count=count, seed=seed)


def rows_like(parameters: Any, canary: Any) -> Any:
    """The gradients of all canaries before clipping, as a pytree with one row for each.

    Arguments:
        parameters: The parameters, whose structure and types the rows have.
        canary: A `GradientCanary`, or an object with ``parameters``, ``count`` and ``rows``.
    """
    jax = imported("jax")
    _, unravel = jax.flatten_util.ravel_pytree(parameters)
    require_size(parameters, canary)
    crafted = np.asarray(canary.rows(np.ones(canary.count, dtype=bool)), dtype=np.float32)
    return jax.vmap(unravel)(jax.numpy.asarray(crafted))


def append_rows(gradients: Any, canary: Any, present: ArrayLike) -> Any:
    """Per-example gradients with one more row for each canary; zeros for those not ``present``.

    Rows are appended in every step and in every run, so that shapes, and with them the divisor of
    a mean, do not depend on the canary. It works inside ``jax.jit``.

    Arguments:
        gradients: A pytree of per-example gradients: one row for each example.
        canary: The crafted gradients.
        present: One boolean for each canary: whether it takes part in this step.

    Example:
        >>> canary = canary_for(3, clip_norm=0.5, seed=1)
        >>> append_rows(np.zeros((2, 3)), canary, True).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 5.0, 0.0]]
    """
    jax = imported("jax")
    numpy = jax.numpy
    gradients = jax.tree.map(numpy.asarray, gradients)
    row = jax.tree.map(lambda leaf: numpy.zeros(leaf.shape[1:], leaf.dtype), gradients)
    mask = traced_coins(present, canary.count)

    def longer(rows: Any, crafted: Any) -> Any:
        taking_part = mask.reshape(-1, *[1] * (crafted.ndim - 1)).astype(rows.dtype)
        return numpy.concatenate([rows, taking_part * crafted.astype(rows.dtype)])

    return jax.tree.map(longer, gradients, rows_like(row, canary))


def record_gradient(
    evidence: PrivateGradients, noisy: Any, canary: GradientCanary, *, divisor: float = 1.0
) -> None:
    """Add the noisy gradient of one step to the evidence that a training returns.

    Behind an adaptive optimizer the final parameters say little about a canary; its noisy gradients
    say what the accountant assumes an adversary to see. Call it outside ``jax.jit``.

    Arguments:
        evidence: What the training returns in place of its parameters.
        noisy: The clipped and noisy sum of a step, a pytree like the parameters.
        canary: The canaries, all of which are scored, inserted or not.
        divisor: The number by which the sum was divided: that of all rows with optax.

    Example:
        >>> canary = canary_for(3, clip_norm=0.5, seed=1)
        >>> evidence = PrivateGradients()
        >>> record_gradient(evidence, np.array([0.1, 0.5, 0.2]), canary)
        >>> evidence.projections.tolist()
        [[1.0]]
    """
    flat, _ = imported("jax").flatten_util.ravel_pytree(noisy)
    require_size(noisy, canary)
    released = np.asarray(flat, dtype=np.float64)[np.asarray(canary.dimensions)]
    evidence.record(released * divisor / canary.clip_norm)


def traced_coins(present: ArrayLike, count: int) -> Any:
    """One boolean for each canary, as a JAX array, also of a traced value."""
    numpy = imported("jax").numpy
    coins = numpy.atleast_1d(numpy.asarray(present)).astype(bool)
    if coins.shape != (count,):
        raise InvalidInput(
            f"present must be one boolean for each of the {count} canaries, got shape {coins.shape}"
        )
    return coins


def require_size(parameters: Any, canary: Any) -> None:
    """Raise an error unless the canary was drawn for as many parameters."""
    size = _size(parameters)
    if canary.parameters != size:
        raise InvalidInput(
            f"canary was drawn for {canary.parameters} parameters and this training has {size}; "
            "draw it with canary_for(parameters, clip_norm=...)"
        )


def imported(name: str, extra: str = "jax") -> Any:
    """A module of an optional dependency."""
    try:
        module = importlib.import_module(name)
        if name == "jax":
            importlib.import_module("jax.flatten_util")
    except ImportError as error:
        raise MissingExtra(f"auditing a training with {name.partition('.')[0]}", extra) from error
    return module


def _size(parameters: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in imported("jax").tree.leaves(parameters))


# The private aggregation of optax.


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


def private_settings(optimizer: Any) -> dict[str, Any] | None:
    """The clip norm and the noise multiplier, which optax keeps in closures; `None` without."""
    update = _private_update(getattr(optimizer, "update", None))
    if update is None:
        return None
    inside = inspect.getclosurevars(update).nonlocals
    clip_norm = float(inside["l2_norm_clip"])
    return {
        "clip_norm": clip_norm,
        "noise_multiplier": float(inside["noise_std"]) / clip_norm,
        "update": update,
    }


def _settings(optimizer: Any) -> dict[str, Any]:
    settings = private_settings(optimizer)
    if settings is None:
        raise InvalidInput(
            "optimizer must contain optax.contrib.differentially_private_aggregate or dpsgd; got "
            f"{type(optimizer).__name__} without it. Use Claim.from_dpsgd(noise_multiplier=..., "
            "steps=...)"
        )
    return settings


def _private_update(function: Any) -> Any:
    """The update of the private aggregation, looked for in the closures of a chain."""
    if not inspect.isfunction(function):
        return None
    inside = inspect.getclosurevars(function).nonlocals
    if {"l2_norm_clip", "noise_std"} <= inside.keys():
        return function
    for value in inside.values():
        for inner in value if isinstance(value, list | tuple) else [value]:
            update = _private_update(getattr(inner, "update", inner))
            if update is not None:
                return update
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
            "use dpaudit.integrations.jax.canary_for(parameters, clip_norm=...)",
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
        settings = _settings(optimizer)
        own = {name: settings[name] for name in ("clip_norm", "noise_multiplier")}
        given = {name: value for name, value in options.items() if value is not None}
        return check_step(self.private_step(optimizer), **{"parameters": 64, **own, **given})
