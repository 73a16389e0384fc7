"""Trainings in several processes: what one process clips, and what all of them share.

With data parallelism (``DistributedDPOptimizer`` and its variants) every process clips the
gradients of its own batch, and the sums are added up. With FSDP2 the sums are tensors of which
every process holds a part (``DTensor``), and they are averages over the processes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dpaudit import _validate
from dpaudit.errors import InvalidInput


def processes(optimizer: Any) -> int:
    """Number of processes that train together."""
    return int(getattr(optimizer, "world_size", 1))


def is_sharded(optimizer: Any) -> bool:
    """Whether every process holds a part of each sum (FSDP2)."""
    return hasattr(optimizer, "grad_state")


def inserts_here(optimizer: Any, rank: int) -> bool:
    """Whether the canary is in the batch of this process.

    Sharded sums contain the whole batch of all processes, so every process adds its part of the
    canary to them.
    """
    total = processes(optimizer)
    rank = _validate.integer("rank", rank, at_least=0)
    if rank >= total:
        raise InvalidInput(
            f"rank must be below the number of processes ({total}), got {rank}; with 0, the "
            "default, the canary is in the batch of the first process"
        )
    return is_sharded(optimizer) or rank == int(getattr(optimizer, "rank", 0))


def summed_gradient(optimizer: Any, parameter: Any) -> Tensor | None:
    """The sum of clipped gradients to which the optimizer adds noise."""
    if is_sharded(optimizer):
        kept: Tensor | None = optimizer.grad_state[parameter]["summed_grad"]
        return kept
    return getattr(parameter, "summed_grad", None)


def share_of_an_example(optimizer: Any) -> float:
    """What an example adds to the sum, in units of its clipped gradient: FSDP2 averages."""
    return 1.0 / processes(optimizer) if is_sharded(optimizer) else 1.0


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes. Every process must call it."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def own_part(values: Tensor, like: Any) -> Tensor:
    """The part of ``values`` that this process holds of the sharded tensor ``like``."""
    from torch.distributed.tensor import distribute_tensor

    # src_data_rank=None: every process has the same values, so nothing is sent.
    part: Tensor = distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)
    return part


def is_sharded_tensor(tensor: Tensor) -> bool:
    """Whether every process holds a part of a tensor."""
    return hasattr(tensor, "placements")
