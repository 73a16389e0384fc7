"""Convolutions as matrix products with patches of the input.

For many small convolutions, computing the forward pass as a product too is faster, because those of
all runs become one batched product. Large convolutions are faster in the vendor's library.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.layer_rules import Gradients, LayerRule, Notes, Tap, is_plain
from dpaudit.engine.products import ALIGNMENT, per_example_product, weight_product

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
Sizes = tuple[int, ...]

PADDED_TO = {"cuda": ALIGNMENT}
"""Tensor cores of a GPU need rows of 16 bytes: 8 numbers in half precision."""


def _is_convolution(layer: nn.Module) -> bool:
    return is_plain(layer, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _convolution_forward(layer: Convolution, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(layer._conv_forward(inputs, layer.weight, layer.bias), (inputs,))


def _convolution_gradients(
    layer: Convolution, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    columns = patches(_padded(layer, notes[0]), _window(layer))
    return _product_gradients(layer, part, (columns,), outputs)


def _product_forward(layer: Convolution, tap: Tap, inputs: Tensor) -> Tensor:
    padded, window = _padded(layer, inputs), _window(layer)
    columns = patches(padded, window)
    flat = weight_product(aligned(layer.weight.flatten(1)), columns.flatten(0, 1))
    lengths = window.places(padded.shape[2:])
    outputs = torch.unflatten(flat, 1, (len(columns), *lengths)).movedim(0, 1)
    if layer.bias is not None:
        outputs = outputs + layer.bias.view(-1, *(1,) * (outputs.ndim - 2))
    return tap(outputs, (columns,))


def _product_gradients(layer: Convolution, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    (columns,), outputs = notes, outputs.flatten(2)  # (examples, channels, places)
    weight: ParameterGradients
    if layer.groups == 1:
        weight = OuterProducts(outputs.transpose(1, 2), columns, layer.weight.shape)
    else:  # each group is a separate convolution; the groups become further examples
        columns = columns[..., : layer.groups * layer.weight[0].numel()]
        left = torch.unflatten(outputs, 1, (layer.groups, -1)).flatten(0, 1)
        right = torch.unflatten(columns, 2, (layer.groups, -1)).movedim(2, 1).flatten(0, 1)
        products = per_example_product(left, right)
        weight = Explicit(products.reshape(len(outputs), *layer.weight.shape))
    return {"weight": weight, "bias": Explicit(outputs.sum(2))}


def _padded(layer: Convolution, inputs: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    amounts = layer._reversed_padding_repeated_twice
    return functional.pad(inputs, amounts, mode=mode) if any(amounts) else inputs


def _window(layer: Convolution) -> Window:
    return Window(size=layer.kernel_size, stride=layer.stride, dilation=layer.dilation)


CONVOLUTION = LayerRule(
    handles=_is_convolution, forward=_convolution_forward, gradients=_convolution_gradients
)
PRODUCT = LayerRule(
    handles=lambda layer: _is_convolution(layer) and getattr(layer, "groups", 0) == 1,
    forward=_product_forward,
    gradients=_product_gradients,
)


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
