"""Patches of an image: the values that a convolution multiplies with its weight.

torch's own backward pass (`col2im`) becomes an atomic addition in compiled code, which is slow and
has no fixed order on a GPU. Here it is a sum of shifted copies in a fixed order.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.products import ALIGNMENT

Sizes = tuple[int, ...]

PADDED_TO = {"cuda": ALIGNMENT}
"""Tensor cores of a GPU need rows of 16 bytes: 8 numbers in half precision."""


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
