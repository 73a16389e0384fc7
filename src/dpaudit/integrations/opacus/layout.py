"""Where the axes of a flat parameter vector lie in the tensors of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpaudit.errors import InvalidInput


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Slot:
    """One trained tensor, and where it begins in the flat vector."""

    parameter: Tensor
    offset: int


def trained_slots(optimizer: Any, model: nn.Module | None = None) -> tuple[tuple[Slot, ...], int]:
    """The tensors that the optimizer trains, and the length of the whole flat vector.

    The flat vector holds the trainable parameters, as `dpaudit.audit_training` reads them from a
    module: in the order of ``model.parameters()`` where a model is given, else in the optimizer's
    own order, which is the same one for the usual ``SGD(model.parameters())``.
    """
    trained = list(optimizer.params)
    if model is None:
        everything = trained
    else:
        everything = [parameter for parameter in model.parameters() if parameter.requires_grad]
        known = {id(parameter) for parameter in everything}
        if any(id(parameter) not in known for parameter in trained):
            raise InvalidInput(
                f"model must hold every parameter that the optimizer trains; this "
                f"{type(model).__name__} does not"
            )
    offsets, total = {}, 0
    for parameter in everything:
        offsets[id(parameter)] = total
        total += parameter.numel()
    slots = (Slot(parameter=parameter, offset=offsets[id(parameter)]) for parameter in trained)
    return tuple(slots), total


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """The non-zero entries of the canaries' gradients in one tensor.

    Arguments:
        slot: The tensor.
        rows: For each entry, which canary it belongs to.
        where: For each entry, its place in the flattened tensor.
        values: For each entry, its value before clipping.
    """

    slot: Slot
    rows: NDArray[np.int64]
    where: Tensor
    values: Tensor

    def __len__(self) -> int:
        return len(self.rows)


def entries_in(
    slots: tuple[Slot, ...],
    *,
    rows: NDArray[np.int64],
    axes: NDArray[np.int64],
    values: NDArray[np.float64],
) -> tuple[Entries, ...]:
    """Sort entries (canary, axis, value) by the tensor they fall into."""
    found = []
    for slot in slots:
        size = slot.parameter.numel()
        here = (axes >= slot.offset) & (axes < slot.offset + size)
        device = slot.parameter.device
        found.append(
            Entries(
                slot=slot,
                rows=rows[here],
                where=torch.as_tensor(axes[here] - slot.offset, device=device),
                values=torch.as_tensor(values[here], device=device).to(slot.parameter.dtype),
            )
        )
    placed = sum(map(len, found))
    if placed != len(axes):
        raise InvalidInput(
            f"{len(axes) - placed} of the canaries' {len(axes)} axes lie in parameters that the "
            "optimizer does not train; draw the canary with canary_for(optimizer, model=model)"
        )
    return tuple(found)


def add_at(tensor: Tensor, where: Tensor, values: Tensor) -> None:
    """Add ``values`` to a tensor at places counted in its flattened order, in place."""
    values = values.to(dtype=tensor.dtype, device=tensor.device)
    where = where.to(tensor.device)
    if tensor.is_contiguous():
        tensor.view(-1).index_add_(0, where, values)
    else:
        tensor.index_put_(torch.unravel_index(where, tensor.shape), values, accumulate=True)
