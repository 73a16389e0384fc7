"""Convolutions: a matrix product with patches of the input."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import per_example_product, weight_product
from dpaudit.engine.rules.base import LayerRule, Notes, is_plain
from dpaudit.engine.rules.patches import Window, aligned, patches

Convolution = torch.nn.Conv1d | torch.nn.Conv2d


@final
class ConvolutionRule(LayerRule):
    """`torch.nn.Conv1d` and `torch.nn.Conv2d`, with any stride, padding, dilation and groups."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return _is_convolution(layer)

    def forward(self, layer: torch.nn.Module, inputs: Tensor) -> tuple[Tensor, Notes]:
        layer = cast(Convolution, layer)
        return layer._conv_forward(inputs, layer.weight, layer.bias), (inputs,)

    def gradients(
        self, layer: torch.nn.Module, notes: Notes, outputs: Tensor
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

    def forward(self, layer: torch.nn.Module, inputs: Tensor) -> tuple[Tensor, Notes]:
        layer = cast(Convolution, layer)
        columns = _patches(layer, inputs)
        flat = weight_product(aligned(layer.weight.flatten(1)), columns.flatten(0, 1))
        outputs = torch.unflatten(flat, 1, (len(columns), *_places(layer, inputs))).movedim(0, 1)
        if layer.bias is not None:
            outputs = outputs + layer.bias.view(-1, *(1,) * (outputs.ndim - 2))
        return outputs, (columns,)

    def gradients(
        self, layer: torch.nn.Module, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        return _gradients(cast(Convolution, layer), notes[0], outputs)


def _is_convolution(layer: torch.nn.Module) -> bool:
    return is_plain(layer, torch.nn.Conv1d) or is_plain(layer, torch.nn.Conv2d)


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
    return patches(_padded(layer, inputs), _window(layer))


def _padded(layer: Convolution, inputs: Tensor) -> Tensor:
    """The padded input, as images: a Conv1d is a Conv2d of height one."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    amounts = layer._reversed_padding_repeated_twice
    padded = functional.pad(inputs, amounts, mode=mode) if any(amounts) else inputs
    return padded.unsqueeze(2) if isinstance(layer, torch.nn.Conv1d) else padded


def _window(layer: Convolution) -> Window:
    def pair(values: tuple[int, ...]) -> tuple[int, int]:
        return (1, values[0]) if len(values) == 1 else (values[0], values[1])

    return Window(
        size=pair(layer.kernel_size), stride=pair(layer.stride), dilation=pair(layer.dilation)
    )


def _places(layer: Convolution, inputs: Tensor) -> tuple[int, ...]:
    amounts = layer._reversed_padding_repeated_twice
    width = inputs.shape[-1] + amounts[0] + amounts[1]
    if isinstance(layer, torch.nn.Conv1d):
        return _window(layer).places(1, width)[1:]
    return _window(layer).places(inputs.shape[-2] + amounts[2] + amounts[3], width)
