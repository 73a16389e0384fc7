"""Canaries as JAX pytrees: a flat gradient in the structure of the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.trainings.canaries import GradientCanary
from dpaudit.trainings.private_gradients import PrivateGradients


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
    one = jax.tree.map(lambda leaf: numpy.zeros(leaf.shape[1:], leaf.dtype), gradients)
    mask = traced_coins(present, canary.count)

    def longer(rows: Any, crafted: Any) -> Any:
        taking_part = mask.reshape(-1, *[1] * (crafted.ndim - 1)).astype(rows.dtype)
        return numpy.concatenate([rows, taking_part * crafted.astype(rows.dtype)])

    return jax.tree.map(longer, gradients, rows_like(one, canary))


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
    seen = np.asarray(flat, dtype=np.float64)[np.asarray(canary.dimensions)]
    evidence.record(seen * divisor / canary.clip_norm)


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
    import importlib

    try:
        module = importlib.import_module(name)
        if name == "jax":
            importlib.import_module("jax.flatten_util")
    except ImportError as error:
        raise MissingExtra(f"auditing a training with {name.partition('.')[0]}", extra) from error
    return module


def _size(parameters: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in imported("jax").tree.leaves(parameters))
