"""Canaries for a training with Opacus."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.coverage import named_sizes
from dpaudit.integrations.opacus.layout import Slot, trained_slots
from dpaudit.trainings.canaries import GradientCanary
from dpaudit.trainings.crafted import AS_LARGE_AS


def canary_for(
    optimizer: Any,
    *,
    count: int = 1,
    seed: int = 0,
    model: nn.Module | None = None,
    per_tensor: bool = False,
) -> GradientCanary:
    r"""Draw canaries for the parameters and the clip norm of an Opacus optimizer.

    With clipping per layer an axis moves by its own layer's norm :math:`C_l` at most, while the
    noise is scaled to :math:`C = \sqrt{\sum_l C_l^2}`. Axes are then drawn from the layers with the
    largest :math:`C_l`, where a canary has the largest effect.

    See also: `insert_canary`; `GradientCanary.draw` without an optimizer.

    Arguments:
        optimizer: A ``DPOptimizer``, as ``make_private`` returns it.
        count: Number of canaries, each on an axis of its own.
        seed: Random seed of the axes.
        model: Needed, here and in `insert_canary`, where the training returns a model and the
            optimizer's parameter groups are in another order than ``model.parameters()``, or omit
            some of those.
        per_tensor: Draw one canary in every tensor that the optimizer trains, instead of ``count``.
            An audit then tests every tensor by itself, and names those that refute the claim. The
            tensors have names if ``model`` is given.
    """
    if not hasattr(optimizer, "params") or not hasattr(optimizer, "max_grad_norm"):
        raise InvalidInput(
            f"optimizer must be a DPOptimizer of Opacus, got {type(optimizer).__name__}; without "
            "one use GradientCanary.draw(parameters, clip_norm=...)"
        )
    count = _validate.integer("count", count, at_least=1)
    slots, total = trained_slots(optimizer, model)
    clip_norm = _validate.positive("max_grad_norm of the optimizer", float(optimizer.max_grad_norm))
    random = np.random.default_rng(_validate.integer("seed", seed))
    if per_tensor:
        return GradientCanary(
            parameters=total,
            dimensions=np.array([random.choice(_axes(slot)) for slot in slots], dtype=np.int64),
            clip_norm=clip_norm,
            norm=AS_LARGE_AS * clip_norm,
            names=tuple(named_sizes(optimizer, model)),
        )
    axes = np.concatenate([_axes(slot) for slot in _largest(slots, optimizer)])
    if count > len(axes):
        raise InvalidInput(
            f"count must be at most {len(axes)}, the number of available axes; got {count}"
        )
    return GradientCanary(
        parameters=total,
        dimensions=random.choice(axes, size=count, replace=False),
        clip_norm=clip_norm,
        norm=AS_LARGE_AS * clip_norm,
    )


def _largest(slots: tuple[Slot, ...], optimizer: Any) -> list[Slot]:
    norms = getattr(optimizer, "max_grad_norms", None)
    if norms is None:
        return list(slots)
    largest = max(norms)
    return [slot for slot, norm in zip(slots, norms, strict=True) if norm == largest]


def _axes(slot: Slot) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(slot.offset, slot.offset + slot.parameter.numel())
