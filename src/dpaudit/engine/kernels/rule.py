"""Blocks of convolution, ReLU and max-pooling, computed by `dpaudit.engine.kernels.operations`.

`with_blocks` joins such layers where they follow each other in a `torch.nn.Sequential`; any other
convolution that is small enough is a block by itself.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.gradients import Explicit
from dpaudit.engine.kernels import launching
from dpaudit.engine.kernels.layout import Layer, Shape, fits
from dpaudit.engine.kernels.operations import block, example_gradients
from dpaudit.engine.layer_rules import Gradients, LayerRule, Notes, Tap, is_plain


@final
class ConvolutionBlock(torch.nn.Module):
    """A convolution with the layers that follow it. Its parameters are those of the convolution."""

    def __init__(self, convolution: torch.nn.Conv2d, *, relu: bool = False, pool: int = 1) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        self.shape = _shape(convolution, relu, pool)

    def forward(self, inputs: Tensor) -> Tensor:
        shape = self.shape
        convolved = functional.conv2d(
            inputs, self.weight, self.bias, shape.stride, shape.padding, shape.dilation
        )
        convolved = convolved.relu() if shape.relu else convolved
        return functional.max_pool2d(convolved, shape.pool) if shape.pool > 1 else convolved


def _forward(layer: ConvolutionBlock, tap: Tap, inputs: Tensor) -> Tensor:
    bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
    values, which = block(layer.weight, bias, inputs, layer.shape)
    return tap(values, (inputs, which))


def _gradients(layer: ConvolutionBlock, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    weight, bias = example_gradients(notes[0], outputs, notes[1], layer.shape)
    return {"weight": Explicit(weight), "bias": Explicit(bias)}


BLOCK = LayerRule(
    handles=lambda layer: isinstance(layer, ConvolutionBlock),
    forward=_forward,
    gradients=_gradients,
)
"""The rule of `ConvolutionBlock`, which only `with_blocks` puts into a model."""


def with_blocks(model: torch.nn.Module, like: Tensor) -> torch.nn.Module:
    """A copy of ``model`` with blocks, or ``model`` if they would change its output.

    The names of the parameters stay. A model may use the layers of a `torch.nn.Sequential` in
    another way than one after the other, so both outputs for some inputs are compared.
    """
    joined = copy.deepcopy(model)
    shapes = _inputs_of_convolutions(joined, like)
    layers = []
    for parent in list(joined.modules()):
        children = list(parent.named_children())
        for place, (name, layer) in enumerate(children):
            if layer not in shapes:
                continue
            in_order = type(parent) is torch.nn.Sequential
            following = children[place + 1 : place + 3] if in_order else []
            relu = bool(following) and is_plain(following[0][1], torch.nn.ReLU)
            pool = _pool(following[relu][1]) if len(following) > relu else 1
            block = ConvolutionBlock(cast(torch.nn.Conv2d, layer), relu=relu, pool=pool)
            sizes = _layer(block, shapes[layer])
            if not fits(sizes):
                continue
            layers.append(replace(sizes, halved=like.dtype == torch.bfloat16))
            setattr(parent, name, block)
            for other, _ in following[: relu + (pool > 1)]:
                setattr(parent, other, torch.nn.Identity())
    with torch.no_grad():
        expected, computed = model(like), joined(like)
    if not torch.allclose(computed, expected, rtol=1e-2, atol=1e-3):
        return model
    if like.device.type == "cuda":
        launching.compile_ahead(layers, like.device)
    return joined


def _inputs_of_convolutions(
    model: torch.nn.Module, like: Tensor
) -> dict[torch.nn.Module, torch.Size]:
    """The size of the inputs of every convolution that can be a block."""
    shapes: dict[torch.nn.Module, torch.Size] = {}

    def see(layer: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shapes[layer] = inputs[0].shape

    layers = [layer for layer in model.modules() if _is_simple(layer)]
    hooks = [layer.register_forward_pre_hook(see) for layer in layers]
    with torch.no_grad():
        model(like)
    for hook in hooks:
        hook.remove()
    return shapes


def _layer(block: ConvolutionBlock, inputs: torch.Size) -> Layer:
    height, width = inputs[-2:]
    return Layer(
        shape=block.shape,
        channels=block.weight.shape[1],
        size=(height, width),
        outputs=len(block.weight),
    )


def _pool(layer: torch.nn.Module) -> int:
    """2 for a max-pooling over windows of 2 x 2 that do not overlap; 1 for any other layer."""
    if not is_plain(layer, torch.nn.MaxPool2d):
        return 1
    layer = cast(torch.nn.MaxPool2d, layer)
    sides = {*_pair(layer.kernel_size), *_pair(layer.stride)}
    plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)
    supported = plain and sides == {2} and not layer.ceil_mode and not layer.return_indices
    return 2 if supported else 1


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else value


def _shape(layer: torch.nn.Conv2d, relu: bool, pool: int) -> Shape:
    sides = layer._reversed_padding_repeated_twice  # the last dimension first
    return Shape(
        kernel=cast(tuple[int, int], layer.kernel_size),
        stride=cast(tuple[int, int], layer.stride),
        padding=(sides[2], sides[0]),
        dilation=cast(tuple[int, int], layer.dilation),
        relu=relu,
        pool=pool,
    )


def _is_simple(layer: torch.nn.Module) -> bool:
    if not is_plain(layer, torch.nn.Conv2d):
        return False
    layer = cast(torch.nn.Conv2d, layer)
    sides = layer._reversed_padding_repeated_twice
    return (
        layer.groups == 1
        and layer.padding_mode == "zeros"
        and sides[0] == sides[1]
        and sides[2] == sides[3]
    )
