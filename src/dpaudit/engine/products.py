"""Matrix products for many runs.

Inside `torch.func.vmap`, a product of a factor that differs between runs with a factor that does
not would copy the latter for every run. Here the runs become further rows of the former: one large
product instead of many small ones. This makes the first layer cheap, because all runs see the same
examples.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

ALIGNMENT = 8
"""Numbers in a row of a matrix are a multiple of this, so that a GPU reads several at once."""

Axes = tuple[int | None, int | None]


def on_gpu(values: Tensor) -> bool:
    """Whether every unfused operation on ``values`` is a kernel to compile and to launch."""
    return values.device.type != "cpu"


def weight_product(weight: Tensor, inputs: Tensor) -> Tensor:
    """(rows, columns) times the transpose of (places, columns), to (rows, places).

    Differentiable with respect to ``inputs`` only: per-example gradients of the weight are computed
    from notes instead.
    """
    return cast(Tensor, _WeightProduct.apply(weight, inputs))  # type: ignore[no-untyped-call]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer on inputs (examples, …, columns); differentiable like `weight_product`.

    Sequences on a GPU keep the features as the last axis in memory, where norms, attention and the
    per-example products read them without a copy. Otherwise the examples are the last axis, which
    vectorises well for narrow layers and for a number of features that leaves rows unaligned, such
    as the 50,257 words of GPT-2.
    """
    flat = inputs.flatten(0, -2)
    if inputs.ndim > 2 and len(weight) % ALIGNMENT == 0 and on_gpu(inputs):
        outputs = cast(Tensor, _RowProduct.apply(flat, weight))  # type: ignore[no-untyped-call]
    else:
        outputs = weight_product(weight, flat).transpose(0, 1)
    outputs = outputs.reshape(*inputs.shape[:-1], len(weight))
    return outputs if bias is None else outputs + bias


def per_example_product(left: Tensor, right: Tensor) -> Tensor:
    """(examples, m, l) times (examples, l, n), one product for each example.

    Like `torch.bmm`. If only ``left`` differs between runs, the runs become further rows of
    ``left`` instead of copies of ``right``.
    """
    return cast(Tensor, _PerExampleProduct.apply(left, right))  # type: ignore[no-untyped-call]


class _WeightProduct(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor, inputs: Tensor) -> Tensor:
        return weight @ inputs.transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (weight,) = ctx.saved_tensors
        return None, (weight.transpose(0, 1) @ gradient).transpose(0, 1)

    @staticmethod
    def vmap(info: Any, in_dims: Axes, weight: Tensor, inputs: Tensor) -> tuple[Tensor, int]:
        runs = info.batch_size
        if in_dims[0] is not None and in_dims[1] is None:
            stacked = weight.movedim(in_dims[0], 0).flatten(0, 1)
            return torch.unflatten(stacked @ inputs.transpose(0, 1), 0, (runs, -1)), 0
        if in_dims[0] is None:  # examples: further places of one product
            places = inputs.movedim(in_dims[1] or 0, 0).flatten(0, 1)
            return torch.unflatten(weight_product(weight, places), 1, (runs, -1)), 1
        weight, inputs = with_runs(weight, in_dims[0], runs), with_runs(inputs, in_dims[1], runs)
        return torch.bmm(weight, inputs.transpose(1, 2)), 0


class _RowProduct(torch.autograd.Function):
    """(places, columns) times the transpose of (rows, columns), to (places, rows)."""

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor) -> Tensor:
        return inputs @ weight.transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return gradient @ weight, None

    @staticmethod
    def vmap(info: Any, in_dims: Axes, inputs: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        runs = info.batch_size
        if in_dims[1] is None:  # examples: further places of one product
            places = inputs.movedim(in_dims[0] or 0, 0).flatten(0, 1)
            product = cast(Tensor, _RowProduct.apply(places, weight))  # type: ignore[no-untyped-call]
            return torch.unflatten(product, 0, (runs, -1)), 0
        inputs, weight = with_runs(inputs, in_dims[0], runs), with_runs(weight, in_dims[1], runs)
        return torch.bmm(inputs, weight.transpose(1, 2)), 0


class _PerExampleProduct(torch.autograd.Function):
    """Never differentiated: it is used after the backward pass."""

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return torch.bmm(left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Axes, left: Tensor, right: Tensor) -> tuple[Tensor, int]:
        runs = info.batch_size
        if in_dims[1] is None and in_dims[0] is not None:
            rows = left.movedim(in_dims[0], 1)  # (examples, runs, m, l)
            product = torch.bmm(rows.flatten(1, 2), right)
            return torch.unflatten(product, 1, (runs, -1)), 1
        left = with_runs(left, in_dims[0], runs)
        right = with_runs(right, in_dims[1], runs)
        product = torch.bmm(left.flatten(0, 1), right.flatten(0, 1))
        return torch.unflatten(product, 0, (runs, -1)), 0


def with_runs(values: Tensor, axis: int | None, runs: int) -> Tensor:
    """``values`` with the axis of runs first; the same for all runs if they have none."""
    return values.expand(runs, *values.shape) if axis is None else values.movedim(axis, 0)
