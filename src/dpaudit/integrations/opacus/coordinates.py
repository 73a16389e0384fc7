"""Numbers of the trained tensors at given coordinates, read and added to, in one process or many.

With data parallelism (``DistributedDPOptimizer`` and its variants) every process clips the
gradients of its own batch, and the sums are added up after the noise. With FSDP2 the sums are
tensors of which every process holds a part (``DTensor``), and they are averages over the processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpaudit._arrays import Array


def processes(optimizer: Any) -> int:
    """Number of processes that train together."""
    return int(getattr(optimizer, "world_size", 1))


def is_sharded(optimizer: Any) -> bool:
    """Whether every process holds a part of each sum (FSDP2)."""
    return hasattr(optimizer, "grad_state")


def summed_gradients(optimizer: Any) -> list[Any]:
    """The sums of clipped gradients to which the optimizer adds noise; `None` where there is none.

    With FSDP2 they are averages over the processes.
    """
    if is_sharded(optimizer):
        return [optimizer.grad_state[parameter]["summed_grad"] for parameter in optimizer.params]
    return [getattr(parameter, "summed_grad", None) for parameter in optimizer.params]


def sum_per_average(optimizer: Any) -> float:
    """By what `summed_gradients` are multiplied to be sums over all processes."""
    return float(processes(optimizer)) if is_sharded(optimizer) else 1.0


def sum_per_gradient(optimizer: Any) -> float:
    """By what the noisy ``grad`` is multiplied to be the noisy sum."""
    if getattr(optimizer, "loss_reduction", "mean") != "mean":
        return sum_per_average(optimizer)
    # Opacus counts the batch of one process and of one backward pass.
    batch = float(getattr(optimizer, "expected_batch_size", None) or 1.0)
    return batch * passes(optimizer) * processes(optimizer)


def passes(optimizer: Any) -> int:
    """Number of backward passes of this step, which Opacus counts by their rows."""
    first = getattr(optimizer.params[0], "grad_sample", None)
    return len(first) if isinstance(first, list) and first else 1


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """The coordinates in one tensor: where they are, and their places among all coordinates."""

    tensor: int
    where: Tensor
    places: slice


@final
class Coordinates:
    """Coordinates of the flat vector of all trained tensors.

    Arguments:
        optimizer: The ``DPOptimizer``.
        flat: Index of each coordinate in that vector.
    """

    def __init__(self, optimizer: Any, flat: NDArray[np.int64]) -> None:
        self._sharded = is_sharded(optimizer)
        self._count = len(flat)
        self._parts: list[_Part] = []
        order: list[NDArray[np.int64]] = []
        start = taken = 0
        for number, parameter in enumerate(optimizer.params):
            here = np.flatnonzero((flat >= start) & (flat < start + parameter.numel()))
            where = torch.as_tensor(flat[here] - start)
            if self._sharded:
                mine, where = _local(parameter, where)
                here = here[mine]
            start += parameter.numel()
            if len(here):
                self._parts.append(
                    _Part(
                        tensor=number,
                        where=where.to(parameter.device),
                        places=slice(taken, taken + len(here)),
                    )
                )
                order.append(here)
                taken += len(here)
        self._device = optimizer.params[0].device
        self._order = np.concatenate(order) if order else np.empty(0, dtype=np.int64)
        self._in_order = np.array_equal(self._order, np.arange(len(flat)))

    def read(self, tensors: Sequence[Any], *, summed: bool = False) -> Tensor:
        """The numbers at the coordinates, in double precision on the device of the first tensor.

        Arguments:
            tensors: One for each trained tensor; where it is `None`, its numbers are zero.
            summed: Whether to add up the tensors of all processes. Parts of tensors always are.
        """
        parts = []
        for part in self._parts:
            tensor = tensors[part.tensor]
            numbers = part.where * 0.0 if tensor is None else _mine(tensor).take(part.where)
            parts.append(numbers.detach().to(self._device))
        values = torch.cat(parts).double() if parts else torch.empty(0, dtype=torch.float64)
        if not self._in_order:
            taken = values.to(self._device)
            values = torch.zeros(self._count, dtype=torch.float64, device=self._device)
            values[torch.as_tensor(self._order, device=self._device)] = taken
        if summed or self._sharded:
            torch.distributed.all_reduce(values)
        return values

    def add(self, tensors: Sequence[Any], amounts: Array) -> None:
        """Add an amount at each coordinate, in place."""
        mine = amounts[self._order]
        moved = torch.as_tensor(mine, dtype=torch.float32, device=self._device)
        for part in self._parts:
            if tensors[part.tensor] is None or not mine[part.places].any():
                continue
            tensor = _mine(tensors[part.tensor])
            values = moved[part.places].to(tensor)
            if tensor.is_contiguous():
                tensor.view(-1).index_add_(0, part.where, values)
            else:
                indices = torch.unravel_index(part.where, tensor.shape)
                tensor.index_put_(indices, values, accumulate=True)


def _mine(tensor: Any) -> Tensor:
    """A tensor, or the part of it that this process holds. Both share their memory with it."""
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local


def _local(parameter: Any, where: Tensor) -> tuple[NDArray[np.bool_], Tensor]:
    """Which of these coordinates are in the part of this process, and where in it."""
    from torch.distributed.tensor import distribute_tensor

    numbers = torch.arange(parameter.numel(), device=parameter.device).view(parameter.shape)
    # src_data_rank=None: every process has the same numbers, so nothing is sent.
    part = distribute_tensor(
        numbers, parameter.device_mesh, parameter.placements, src_data_rank=None
    )
    held = part.to_local().reshape(-1).cpu()  # ascending
    at = torch.searchsorted(held, where).clamp(max=max(0, len(held) - 1))
    inside = held[at] == where if len(held) else torch.zeros_like(where, dtype=torch.bool)
    return inside.numpy(), at[inside]
