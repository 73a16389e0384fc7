"""Matrix products for many runs, and the patches with which convolutions are such products.

Inside `torch.func.vmap`, a product of a factor that differs between runs with a factor that does
not would copy the latter for every run. Here the runs become further rows of the former: one large
product instead of many small ones. This makes the first layer cheap, because all runs see the same
examples.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.nn import functional

ALIGNMENT = 8
"""Numbers in a row of a matrix are a multiple of this, so that a GPU reads several at once."""

PADDED_TO = {"cuda": ALIGNMENT}
"""Tensor cores of a GPU need rows of 16 bytes: 8 numbers in half precision."""

Axes = tuple[int | None, int | None]
Sizes = tuple[int, ...]


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


@final
@dataclass(frozen=True, kw_only=True)
class Window:
    """The window of a convolution in one, two or three dimensions, on padded inputs."""

    size: Sizes
    stride: Sizes
    dilation: Sizes

    def places(self, lengths: Sizes) -> Sizes:
        """Number of windows along each dimension."""
        return tuple(
            (length - dilation * (size - 1) - 1) // stride + 1
            for length, size, stride, dilation in zip(
                lengths, self.size, self.stride, self.dilation, strict=True
            )
        )

    def offsets(self) -> list[Sizes]:
        """The positions inside the window, row by row."""
        return list(itertools.product(*map(range, self.size)))


def patches(images: Tensor, window: Window) -> Tensor:
    """(examples, channels, *lengths) to (examples, places, columns).

    Columns are channels times window; on a GPU padded with zeros to a multiple of `PADDED_TO`.

    Example:
        >>> window = Window(size=(2, 2), stride=(1, 1), dilation=(1, 1))
        >>> patches(torch.arange(9.0).view(1, 1, 3, 3), window)[0].int().tolist()
        [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    """
    return cast(Tensor, _Patches.apply(images, window))  # type: ignore[no-untyped-call]


def aligned(values: Tensor) -> Tensor:
    """``values`` with its last axis padded with zeros to a multiple of `PADDED_TO`."""
    missing = -values.shape[-1] % PADDED_TO.get(values.device.type, 1)
    return functional.pad(values, (0, missing)) if missing else values


class _Patches(torch.autograd.Function):
    """With torch's own backward pass (`col2im`) compiled code would add atomically, which is slow
    and has no fixed order on a GPU. Here it is a sum of shifted copies in a fixed order.
    """

    @staticmethod
    def forward(images: Tensor, window: Window) -> Tensor:
        # One strided view and one copy. torch's `im2col` is launched once for every image on a
        # GPU and traced as a copy for each position of the window. `as_strided` also prevents the
        # compiler from recomputing the images for every window.
        images = images.contiguous()
        dimensions = len(window.size)
        example, channel, *steps = images.stride()
        moves = [step * stride for step, stride in zip(steps, window.stride, strict=True)]
        inside = [step * dilation for step, dilation in zip(steps, window.dilation, strict=True)]
        places = window.places(images.shape[2:])
        view = images.as_strided(
            (len(images), *places, images.shape[1], *window.size),
            (example, *moves, channel, *inside),
        )
        return aligned(view.flatten(1 + dimensions).flatten(1, dimensions))

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], images: Tensor, window: Window
    ) -> tuple[Tensor, int]:
        runs = images.movedim(in_dims[0] or 0, 0)
        columns = patches(runs.flatten(0, 1), window)
        return torch.unflatten(columns, 0, (info.batch_size, -1)), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Window], output: Tensor) -> None:
        images, ctx.window = inputs
        ctx.shape = images.shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum_of_shifts(gradient, ctx.shape[1:], ctx.window), None


def _sum_of_shifts(gradient: Tensor, shape: Sizes, window: Window) -> Tensor:
    channels, *lengths = shape
    dimensions, size = len(lengths), math.prod(window.size)
    parts = torch.unflatten(gradient[..., : channels * size], 2, (channels, size))
    parts = torch.unflatten(parts, 1, window.places(tuple(lengths)))
    total: Tensor | None = None
    for number, offset in enumerate(window.offsets()):
        part = parts[..., number].movedim(1 + dimensions, 1)  # (examples, channels, *places)
        for axis, length in enumerate(lengths):
            first = offset[axis] * window.dilation[axis]
            part = _spread(part, 2 + axis, length, first, window.stride[axis])
        total = part if total is None else total + part
    return cast(Tensor, total)


def _spread(values: Tensor, axis: int, length: int, first: int, stride: int) -> Tensor:
    """``values`` at first, first + stride, … of an axis with zeros elsewhere."""
    if stride > 1:
        gaps = [0, 0] * (values.ndim - 1 - axis) + [0, stride - 1]
        values = functional.pad(values.unsqueeze(axis + 1), gaps).flatten(axis, axis + 1)
    # The gap after the last value may exceed the axis; a negative pad removes it.
    after = length - first - values.shape[axis]
    return functional.pad(values, [0, 0] * (values.ndim - 1 - axis) + [first, after])
