"""Convolutions: a matrix product with patches of the input."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import per_example_product, weight_product
from dpaudit.engine.rules.base import LayerRule, Notes, Tap, is_plain
from dpaudit.engine.rules.patches import Window, aligned, patches

Convolution = torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d


@final
class ConvolutionRule(LayerRule):
    """`torch.nn.Conv1d`, `Conv2d` and `Conv3d`, with any stride, padding, dilation and groups."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return _is_convolution(layer)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(Convolution, layer)
        return tap(layer._conv_forward(inputs, layer.weight, layer.bias), (inputs,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(Convolution, layer)
        return _gradients(layer, _patches(layer, notes[0]), outputs)


@final
class ConvolutionProductRule(LayerRule):
    """Convolutions without groups, computed as products with patches in the forward pass too.

    Faster for many small convolutions, because those of all runs become one batched product. Large
    convolutions are faster in the vendor's library.
    """

    def handles(self, layer: torch.nn.Module) -> bool:
        return _is_convolution(layer) and getattr(layer, "groups", 0) == 1

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(Convolution, layer)
        columns = _patches(layer, inputs)
        flat = weight_product(aligned(layer.weight.flatten(1)), columns.flatten(0, 1))
        outputs = torch.unflatten(flat, 1, (len(columns), *_places(layer, inputs))).movedim(0, 1)
        if layer.bias is not None:
            outputs = outputs + layer.bias.view(-1, *(1,) * (outputs.ndim - 2))
        return tap(outputs, (columns,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        return _gradients(cast(Convolution, layer), notes[0], outputs)


def _is_convolution(layer: torch.nn.Module) -> bool:
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return any(is_plain(layer, kind) for kind in kinds)


def _gradients(
    layer: Convolution, columns: Tensor, outputs: Tensor
) -> dict[str, ParameterGradients]:
    outputs = outputs.flatten(2)  # (examples, channels, places)
    return {
        "weight": OuterProducts(outputs.transpose(1, 2), columns, layer.weight.shape)
        if layer.groups == 1
        else _grouped(layer, outputs, columns),
        "bias": Explicit(outputs.sum(2)),
    }


def _grouped(layer: Convolution, outputs: Tensor, columns: Tensor) -> ParameterGradients:
    """Each group is a separate convolution; the groups become further examples."""
    columns = columns[..., : layer.groups * layer.weight[0].numel()]
    left = torch.unflatten(outputs, 1, (layer.groups, -1)).flatten(0, 1)
    right = torch.unflatten(columns, 2, (layer.groups, -1)).movedim(2, 1).flatten(0, 1)
    products = per_example_product(left, right)
    return Explicit(products.reshape(len(outputs), *layer.weight.shape))


def _patches(layer: Convolution, inputs: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    amounts = layer._reversed_padding_repeated_twice
    padded = functional.pad(inputs, amounts, mode=mode) if any(amounts) else inputs
    return patches(padded, _window(layer))


def _window(layer: Convolution) -> Window:
    return Window(size=layer.kernel_size, stride=layer.stride, dilation=layer.dilation)


def _places(layer: Convolution, inputs: Tensor) -> tuple[int, ...]:
    amounts = layer._reversed_padding_repeated_twice  # the last dimension first
    lengths = tuple(
        length + sum(amounts[2 * back : 2 * back + 2])
        for back, length in zip(range(inputs.ndim - 3, -1, -1), inputs.shape[2:], strict=True)
    )
    return _window(layer).places(lengths)
