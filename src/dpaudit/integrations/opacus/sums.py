"""The canaries' gradients added to sums: clipped to ``summed_grad``, unclipped to ``grad``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.distributed import share_of_an_example, summed_gradient
from dpaudit.integrations.opacus.layout import Entries, add_at, masked

Mask = NDArray[np.bool_]


def add_clipped(optimizer: Any, canary: Any, entries: Sequence[Entries], mask: Mask | None) -> None:
    """Add to ``summed_grad`` what correct clipping leaves of the canaries in ``mask``."""
    per_layer = getattr(optimizer, "max_grad_norms", None)
    for here in entries:
        norm = optimizer.max_grad_norm if per_layer is None else per_layer[here.index]
        total = summed_gradient(optimizer, here.slot.parameter)
        if total is None:
            raise InvalidInput(
                "the optimizer keeps no summed_grad to add a clipped canary to; "
                "use through_clipping=True"
            )
        # At most the claimed clip norm and the one in force for this tensor.
        length = min(canary.norm, canary.clip_norm, float(norm)) * share_of_an_example(optimizer)
        values = masked(here.values, here, mask)
        add_at(total, here.where, values, times=length / canary.norm)


def add_raw(
    optimizer: Any, entries: Sequence[Entries], mask: Mask | None, batch: float | None
) -> None:
    """Add to ``grad`` what an example adds to the gradient of the loss without privacy.

    Arguments:
        optimizer: The optimizer, for whether its loss is a mean or a sum.
        entries: The canaries' entries in the tensors that hold any.
        mask: The canaries that take part; all if `None`.
        batch: Number of examples of the mean, if it is known.
    """
    mean = getattr(optimizer, "loss_reduction", "mean") == "mean" and batch
    for here in entries:
        gradient = here.slot.parameter.grad
        if gradient is not None:
            values = masked(here.values, here, mask)
            add_at(gradient, here.where, values, times=1 / batch if mean and batch else 1.0)
