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
from torch._utils import _flatten_dense_tensors

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


_SMALL = 2**16
"""Tensors on a GPU of at most this size are joined: each operation costs more than its numbers."""


@final
@dataclass(kw_only=True, eq=False)
class _Part:
    """The coordinates in one tensor, or in all small ones of a GPU, joined."""

    tensors: Sequence[int]
    shapes: Sequence[torch.Size]
    where: Tensor
    places: NDArray[np.int64]
    _changes: tuple[Tensor, Sequence[Tensor]] | None = None

    def read(self, tensors: Sequence[Any]) -> Tensor:
        """The numbers at these coordinates; zero where there is no tensor."""
        mine = [
            self.where.new_zeros(shape, dtype=torch.float32) if tensors[n] is None else tensors[n]
            for n, shape in zip(self.tensors, self.shapes, strict=True)
        ]
        if len(mine) == 1:
            return mine[0].take(self.where)
        joined: Tensor = _flatten_dense_tensors(mine)  # type: ignore[no-untyped-call]
        return joined.index_select(0, self.where)

    def add(self, tensors: Sequence[Any], amounts: Tensor, times: float) -> None:
        """Add the amounts at these coordinates, in place, where there is a tensor."""
        if len(self.tensors) == 1:
            _add_in_one(tensors[self.tensors[0]], self.where, amounts, times)
            return
        if self._changes is None:
            joined = amounts.new_zeros(sum(shape.numel() for shape in self.shapes))
            parts = torch.split(joined, [shape.numel() for shape in self.shapes])
            views = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
            self._changes = joined, views
        joined, changes = self._changes
        joined.index_copy_(0, self.where, amounts)  # zero at all other places
        mine = [tensors[n] for n in self.tensors]
        there = [(own, view) for own, view in zip(mine, changes, strict=True) if own is not None]
        if there:
            torch._foreach_add_(*zip(*there, strict=True), alpha=times)


def _add_in_one(tensor: Tensor | None, where: Tensor, amounts: Tensor, times: float) -> None:
    if tensor is None:
        return
    if tensor.is_contiguous():
        tensor.view(-1).index_add_(0, where, amounts.to(tensor), alpha=times)
    else:
        index = torch.unravel_index(where, tensor.shape)
        tensor.index_put_(index, times * amounts.to(tensor), accumulate=True)


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
        self._device = optimizer.params[0].device
        groups: dict[Any, list[_Inside]] = {}
        start = 0
        for number, parameter in enumerate(optimizer.params):
            here = np.flatnonzero((flat >= start) & (flat < start + parameter.numel()))
            where = torch.as_tensor(flat[here] - start)
            start += parameter.numel()
            if self._sharded:
                mine, where = _local(parameter, where)
                here = here[mine]
            if len(here):
                shape = _mine(parameter).shape
                group = parameter.device if _is_joined(parameter, shape) else number
                groups.setdefault(group, []).append((number, shape, where, here))
        self._parts = [_joined(group, optimizer.params) for group in groups.values()]
        places = [part.places for part in self._parts]
        order = np.concatenate([np.empty(0, dtype=np.int64), *places])
        # Parts hold the coordinates in another order, and with FSDP2 not all of them.
        in_order = np.array_equal(order, np.arange(len(flat)))
        self._back = None if in_order else torch.as_tensor(order, device=self._device)

    @torch.no_grad()
    def read(self, tensors: Sequence[Any], *, summed: bool = False) -> Tensor:
        """The numbers at the coordinates, on the device of the first tensor.

        Arguments:
            tensors: One for each trained tensor; where it is `None`, its numbers are zero.
            summed: Whether to add up the tensors of all processes. Parts of tensors always are.
        """
        tensors = self._mine(tensors)
        parts = [part.read(tensors).to(self._device) for part in self._parts]
        nothing = torch.empty(0, device=self._device)
        values = parts[0] if len(parts) == 1 else torch.cat([nothing, *parts])
        if self._back is not None:
            values = values.new_zeros(self._count).index_copy_(0, self._back, values)
        if summed or self._sharded:
            values = values.double()
            torch.distributed.all_reduce(values)
        return values

    def moved(self, amounts: Array) -> Tensor:
        """Amounts at the coordinates, along the last axis, where `add` needs them."""
        moved = without_waiting(torch.as_tensor(amounts, dtype=torch.float32), self._device)
        return moved if self._back is None else moved[..., self._back]

    @torch.no_grad()
    def add(self, tensors: Sequence[Any], moved: Tensor, *, times: float = 1.0) -> None:
        """Add so many times the `moved` amount at each coordinate, in place."""
        tensors = self._mine(tensors)
        amounts = torch.split(moved, [len(part.places) for part in self._parts])
        for part, own in zip(self._parts, amounts, strict=True):
            part.add(tensors, own.to(part.where.device), times)

    def _mine(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """What this process holds of these tensors, in the same memory."""
        return [t if t is None else _mine(t) for t in tensors] if self._sharded else tensors


_Inside = tuple[int, torch.Size, Tensor, NDArray[np.int64]]
"""Number and shape of a tensor, indices in it, and their places among all coordinates."""


def _is_joined(parameter: Any, shape: torch.Size) -> bool:
    return bool(parameter.device.type == "cuda" and shape.numel() <= _SMALL)


def _joined(group: Sequence[_Inside], parameters: Sequence[Any]) -> _Part:
    """The coordinates in these tensors, as coordinates of one."""
    numbers, shapes, where, places = zip(*group, strict=True)
    starts = np.cumsum([0, *(shape.numel() for shape in shapes[:-1])]).tolist()
    joined = torch.cat([here + start for here, start in zip(where, starts, strict=True)])
    return _Part(
        tensors=numbers,
        shapes=shapes,
        where=joined.to(parameters[numbers[0]].device),
        places=np.concatenate(places),
    )


def without_waiting(values: Tensor, device: torch.device) -> Tensor:
    """A copy on another device, for which Python does not wait where one of them is CUDA.

    What comes from a GPU may be read once the work of its stream until now is done.
    """
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device, non_blocking=values.device.type == "cuda")


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
