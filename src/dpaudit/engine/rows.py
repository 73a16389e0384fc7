"""Sums of rows in a fixed order.

The compiler would turn `index_add` into atomic additions, whose order and rounding vary on a GPU.
The compiler does not change a custom operation, and torch's accumulating `index_put_` sorts on a
GPU.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


@torch.library.custom_op(
    "dpaudit::sum_rows", mutates_args=(), schema="(Tensor rows, Tensor values, int count) -> Tensor"
)
def _sum_rows(rows: Tensor, values: Tensor, count: int) -> Tensor:
    table = values.new_zeros(count, values.shape[1])
    return table.index_put_((rows,), values, accumulate=True)


@_sum_rows.register_fake
def _shape(rows: Tensor, values: Tensor, count: int) -> Tensor:
    return values.new_empty(count, values.shape[1])


@_sum_rows.register_vmap
def _for_runs(
    info: Any,
    in_dims: tuple[int | None, int | None, None],
    rows: Tensor,
    values: Tensor,
    count: int,
) -> tuple[Tensor, int]:
    runs = info.batch_size
    values = values.expand(runs, *values.shape) if in_dims[1] is None else values
    values = values.movedim(in_dims[1] or 0, 1)  # (places, runs, columns)
    if in_dims[0] is None:
        return torch.unflatten(sum_rows(rows, values.flatten(1), count), 1, (runs, -1)), 1
    offsets = count * torch.arange(runs, device=rows.device)
    own = rows.movedim(in_dims[0], 1) + offsets
    return torch.unflatten(
        sum_rows(own.flatten(), values.flatten(0, 1), runs * count), 0, (runs, count)
    ), 0


def sum_rows(rows: Tensor, values: Tensor, count: int) -> Tensor:
    """A table of ``count`` rows; row ``i`` is the sum of the ``values`` whose ``rows`` say ``i``.

    Example:
        >>> sum_rows(torch.tensor([2, 0, 2]), torch.tensor([[1.0], [2.0], [3.0]]), 3).tolist()
        [[2.0], [0.0], [4.0]]
    """
    return cast(Tensor, _sum_rows(rows, values, count))
