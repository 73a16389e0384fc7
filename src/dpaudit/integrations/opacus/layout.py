"""Map the axes of a flat parameter vector to the tensors of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.distributed import is_sharded_tensor, own_part
from dpaudit.trainings.canaries import GradientCanary


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Slot:
    """One trained tensor, and its offset in the flat vector."""

    parameter: Tensor
    offset: int


def trained_slots(optimizer: Any, model: nn.Module | None = None) -> tuple[tuple[Slot, ...], int]:
    """The tensors that the optimizer trains, and the length of the whole flat vector.

    The flat vector holds the trainable parameters, as `dpaudit.audit_training` reads them from a
    module: in the order of ``model.parameters()`` if a model is given, else in the optimizer's own
    order, which is the same for the usual ``SGD(model.parameters())``.
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
        index: Index of the tensor among those that the optimizer trains.
        rows: Row of the canary of each entry.
        where: Index of each entry in the flattened tensor.
        values: Value of each entry before clipping.
    """

    slot: Slot
    index: int
    rows: NDArray[np.int64]
    where: Tensor
    values: Tensor

    def __len__(self) -> int:
        return len(self.rows)


class Canary(Protocol):
    """Crafted gradients of any shape: a `GradientCanary`, or a user's class with these members."""

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""

    @property
    def count(self) -> int:
        """Number of canaries."""

    def rows(self, inserted: ArrayLike) -> ArrayLike:
        """The gradients before clipping of the inserted canaries, one row each."""


def entries_of(
    canary: Canary, coins: NDArray[np.bool_]
) -> tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The number of rows of the inserted canaries, and (row, axis, value) of nonzero entries."""
    if isinstance(canary, GradientCanary):  # without making its rows: there may be thousands
        axes = canary.dimensions[coins]
        return len(axes), np.arange(len(axes)), axes, np.full(len(axes), canary.norm)
    rows = np.asarray(canary.rows(coins), dtype=np.float64).reshape(-1, canary.parameters)
    where, axes = np.nonzero(rows)
    return len(rows), where, axes, rows[where, axes]


def entries_in(
    slots: tuple[Slot, ...],
    *,
    rows: NDArray[np.int64],
    axes: NDArray[np.int64],
    values: NDArray[np.float64],
) -> tuple[Entries, ...]:
    """Sort entries (canary, axis, value) by tensor."""
    found = []
    for index, slot in enumerate(slots):
        size = slot.parameter.numel()
        here = (axes >= slot.offset) & (axes < slot.offset + size)
        device = slot.parameter.device
        found.append(
            Entries(
                slot=slot,
                index=index,
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


def add_at(tensor: Tensor, where: Tensor, values: Tensor, *, times: float = 1.0) -> None:
    """Add ``times * values`` in place, at the given indices of the flattened tensor."""
    if is_sharded_tensor(tensor):
        crafted = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        add_at(crafted, where, values, times=times)
        tensor.add_(own_part(crafted, tensor))
        return
    if values.dtype != tensor.dtype or values.device != tensor.device:
        values, where = values.to(tensor), where.to(tensor.device)
    if tensor.is_contiguous():
        tensor.view(-1).index_add_(0, where, values, alpha=times)
    else:
        places = torch.unravel_index(where, tensor.shape)
        tensor.index_put_(places, times * values, accumulate=True)


def latest_rows(parameter: Any) -> Tensor | None:
    """The per-example gradients of the last backward pass."""
    rows: Tensor | list[Tensor] | None = getattr(parameter, "grad_sample", None)
    if isinstance(rows, list):
        return rows[-1] if rows else None
    return rows


def batches(parameter: Any) -> int:
    """Number of backward passes of the next step."""
    rows = getattr(parameter, "grad_sample", None)
    return len(rows) if isinstance(rows, list) else 1


def masked(values: Tensor, entries: Entries, mask: NDArray[np.bool_] | None) -> Tensor:
    """Zero for the canaries that do not take part."""
    if mask is None:
        return values
    return values * torch.as_tensor(mask[entries.rows], device=values.device)
