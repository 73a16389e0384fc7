"""Errors for insertions that are impossible, raised before anything is changed."""

from __future__ import annotations

from typing import Any

from dpaudit import _validate
from dpaudit.errors import InvalidInput


def require_insertable(optimizer: Any, through_clipping: bool, apart: bool | None) -> None:
    """Raise an error if canaries cannot be inserted into this optimizer in this way."""
    needed = ("step", "params", "original_optimizer", "max_grad_norm")
    missing = [name for name in needed if not hasattr(optimizer, name)]
    if missing:
        raise InvalidInput(
            f"optimizer must be a DPOptimizer of Opacus, as make_private returns it; got "
            f"{type(optimizer).__name__}, which has no {missing[0]}"
        )
    if hasattr(optimizer, "_ddp_per_layer_hook"):
        raise InvalidInput(
            f"optimizer {type(optimizer).__name__} clips and adds noise in the backward pass, "
            "before a canary could be added; use SimpleDistributedPerLayerOptimizer, which "
            "make_private returns for clipping='per_layer'"
        )
    if apart and not through_clipping:
        raise InvalidInput("apart=True needs through_clipping=True: otherwise no canary is clipped")
    if through_clipping and hasattr(optimizer, "accumulate"):
        raise InvalidInput(
            f"optimizer {type(optimizer).__name__} clips without per-example gradients, so a "
            "canary cannot pass through its clipping; use through_clipping=False, which tests the "
            "noise and the accounting"
        )


def require_memory(needed: int, memory: int) -> None:
    """Raise an error if the canaries' rows exceed the allowed memory."""
    memory = _validate.integer("memory", memory, at_least=1)
    if needed > memory:
        raise InvalidInput(
            f"the canaries' rows would take {needed / 2**20:,.0f} MiB, above memory="
            f"{memory / 2**20:,.0f} MiB; use through_clipping=False, fewer canaries, or more memory"
        )
