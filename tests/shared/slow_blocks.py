"""The slow twins of the kernels for blocks of convolution, ReLU and max-pooling, in plain torch.

Importing this module also makes them the operations on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input

from dpaudit.engine.kernels import operations
from dpaudit.engine.kernels.layout import Pair, Shape


def forward(weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """As `dpaudit.engine.kernels.launching.forward`."""
    runs = len(weight)
    merged = inputs.expand(runs, *inputs.shape[1:]).transpose(0, 1).flatten(1, 2)
    convolved = functional.conv2d(
        merged,
        weight.flatten(0, 1),
        bias.flatten(),
        stride=shape.stride,
        padding=shape.padding,
        dilation=shape.dilation,
        groups=runs,
    )
    convolved = torch.unflatten(convolved, 1, (runs, -1)).transpose(0, 1)
    if not shape.selects:
        return convolved.contiguous(), torch.zeros(0, dtype=torch.int8, device=inputs.device)
    values, position = _by_position(convolved, shape).max(-1)
    if shape.relu:
        position = torch.where(values > 0, position, -1)
        values = values.relu()
    return values.contiguous(), position.to(torch.int8).contiguous()


def input_gradient(
    weight: Tensor, gradient: Tensor, which: Tensor, size: Pair, shape: Shape
) -> Tensor:
    """As `dpaudit.engine.kernels.launching.input_gradient`."""
    runs, examples = gradient.shape[:2]
    merged = _before_pooling(gradient, which, size, shape).transpose(0, 1).flatten(1, 2)
    propagated: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
        [examples, runs * weight.shape[2], *size],
        weight.flatten(0, 1),
        merged,
        stride=shape.stride,
        padding=shape.padding,
        dilation=shape.dilation,
        groups=runs,
    )
    return torch.unflatten(propagated, 1, (runs, -1)).transpose(0, 1).contiguous()


def weight_gradient(
    inputs: Tensor, gradient: Tensor, which: Tensor, shape: Shape
) -> tuple[Tensor, Tensor]:
    """As `dpaudit.engine.kernels.launching.weight_gradient`."""
    groups, examples, channels = inputs.shape[:3]
    size = (inputs.shape[3], inputs.shape[4])
    outputs = _before_pooling(gradient, which, size, shape)
    columns = functional.unfold(
        inputs.flatten(0, 1),
        shape.kernel,
        stride=shape.stride,
        padding=shape.padding,
        dilation=shape.dilation,
    )
    columns = torch.unflatten(columns, 0, (groups, examples))
    columns = columns.expand(len(gradient), *columns.shape[1:])
    products = torch.einsum("rbop,rbkp->rbok", outputs.flatten(3), columns)
    return torch.unflatten(products, 3, (channels, *shape.kernel)), outputs.sum((3, 4))


def _by_position(values: Tensor, shape: Shape) -> Tensor:
    """(…, height, width) of the convolution to (…, windows, windows, positions)."""
    pool = shape.pool
    height, width = values.shape[-2] // pool, values.shape[-1] // pool
    cropped = values[..., : height * pool, : width * pool]
    split = torch.unflatten(torch.unflatten(cropped, -1, (width, pool)), -3, (height, pool))
    return split.transpose(-3, -2).flatten(-2)


def _before_pooling(gradient: Tensor, which: Tensor, size: Pair, shape: Shape) -> Tensor:
    """The gradient of the convolution's outputs."""
    if not shape.selects:
        return gradient
    pool, (height, width) = shape.pool, shape.places(size)
    positions = torch.arange(pool**2, device=which.device, dtype=which.dtype)
    spread = torch.where(which.unsqueeze(-1) == positions, gradient.unsqueeze(-1), 0)
    spread = torch.unflatten(spread, -1, (pool, pool)).transpose(-3, -2)
    spread = spread.flatten(-2).flatten(-3, -2)
    return functional.pad(spread, (0, width - spread.shape[-1], 0, height - spread.shape[-2]))


if not torch._C._dispatch_has_kernel_for_dispatch_key("dpaudit::block_forward", "CPU"):
    # pytest imports this module a second time, to look for doctests.
    _ON_A_CPU = torch.library.Library("dpaudit", "IMPL", "CPU")  # type: ignore[no-untyped-call]
    for _name, _twin in (
        ("block_forward", forward),
        ("block_input_gradient", input_gradient),
        ("block_weight_gradient", weight_gradient),
    ):
        _ON_A_CPU.impl(_name, operations._with_shape(_twin))  # type: ignore[no-untyped-call]
