"""Convolution, ReLU and max-pooling as one operation, with per-example gradients of the weight.

The operations have an axis of runs and are the kernels of `dpaudit.engine.kernels.launching`. As
operations of `torch.library` they let the compiler plan and fuse around them. The twins in plain
torch are in ``tests/shared/slow_blocks.py``.

`dpaudit.engine.kernels.rule` uses them for the layers of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from dpaudit.engine.kernels import launching
from dpaudit.engine.kernels.layout import Shape
from dpaudit.engine.products import with_runs

_OPERATIONS = torch.library.Library("dpaudit", "DEF")  # type: ignore[no-untyped-call]
"""Defined without `torch.library.custom_op`, whose calls take three times as long."""


def _operation(schema: str, kernel: Callable[..., Any], sizes: Callable[..., Any]) -> Any:
    """An operation of `torch.library`; ``sizes`` gives its results without values."""
    name = schema.split("(")[0]
    _OPERATIONS.define(schema)  # type: ignore[no-untyped-call]
    _OPERATIONS.impl(name, kernel, "CUDA")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"dpaudit::{name}", sizes)
    return getattr(torch.ops.dpaudit, name).default


def _with_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with the numbers of a shape instead of the shape as its last argument."""
    return lambda *arguments: function(*arguments[:-1], Shape.of(arguments[-1]))


def _outputs(weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    size = (len(weight), inputs.shape[1], weight.shape[1], *shape.windows(inputs.shape[3:]))
    which = inputs.new_empty(size if shape.selects else (0,), dtype=torch.int8)
    return inputs.new_empty(size), which


def _like_inputs(
    weight: Tensor, gradient: Tensor, which: Tensor, size: list[int], shape: Shape
) -> Tensor:
    return gradient.new_empty(*gradient.shape[:2], weight.shape[2], *size)


def _like_parameters(
    inputs: Tensor, gradient: Tensor, which: Tensor, shape: Shape
) -> tuple[Tensor, Tensor]:
    first = gradient.shape[:3]
    return gradient.new_empty(*first, inputs.shape[2], *shape.kernel), gradient.new_empty(first)


_forward = _operation(
    "block_forward(Tensor weight, Tensor bias, Tensor inputs, int[] shape) -> (Tensor, Tensor)",
    _with_shape(launching.forward),
    _with_shape(_outputs),
)
_input_gradient = _operation(
    "block_input_gradient(Tensor weight, Tensor gradient, Tensor which, int[] size, int[] shape)"
    " -> Tensor",
    _with_shape(launching.input_gradient),
    _with_shape(_like_inputs),
)
_weight_gradient = _operation(
    "block_weight_gradient(Tensor inputs, Tensor gradient, Tensor which, int[] shape)"
    " -> (Tensor, Tensor)",
    _with_shape(launching.weight_gradient),
    _with_shape(_like_parameters),
)


def block(weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """`launching.forward` for one run; differentiable by ``inputs``. Runs come by `vmap`."""
    return cast(tuple[Tensor, Tensor], _Block.apply(weight, bias, inputs, shape))  # type: ignore[no-untyped-call]


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape
    ) -> tuple[Tensor, Tensor]:
        values, which = _forward(weight[None], bias[None], inputs[None], shape.numbers())
        return values[0], which[0] if shape.selects else which

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weight, _, images, ctx.shape = inputs
        ctx.size = [images.shape[-2], images.shape[-1]]
        ctx.save_for_backward(weight, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[None, None, Tensor | None, None]:
        if not ctx.needs_input_grad[2]:
            return None, None, None, None
        weight, which = ctx.saved_tensors
        return None, None, _one_input_gradient(weight, gradient, which, ctx.size, ctx.shape), None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        weight: Tensor,
        bias: Tensor,
        inputs: Tensor,
        shape: Shape,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
        axes = (0, 0 if shape.selects else None)
        if in_dims[0] is None and in_dims[1] is None:  # examples instead of runs
            values, which = block(weight, bias, inputs.movedim(in_dims[2], 0).flatten(0, 1), shape)
            each = (info.batch_size, -1)
            which = torch.unflatten(which, 0, each) if shape.selects else which
            return (torch.unflatten(values, 0, each), which), axes
        weight = _copied(weight, in_dims[0], info.batch_size)
        bias = _copied(bias, in_dims[1], info.batch_size)
        return _forward(weight, bias, _maybe_shared(inputs, in_dims[2]), shape.numbers()), axes


def _for_one_run(operation: Any, *, shared: int | None = None) -> Callable[..., Any]:
    """An operation without its axis of runs, which `vmap` adds. It is never differentiated.

    It takes tensors, of which number ``shared`` may be the same for all runs, and last the shape.
    """

    class OneRun(torch.autograd.Function):
        @staticmethod
        def forward(*given: Any) -> Any:
            *values, shape = given
            alone = [v[None] if isinstance(v, Tensor) and v.numel() else v for v in values]
            results = operation(*alone, shape.numbers())
            return results[0] if isinstance(results, Tensor) else tuple(r[0] for r in results)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *given: Any) -> Any:
            *values, shape = given
            for number, (value, axis) in enumerate(zip(values, in_dims, strict=False)):
                if number == shared:
                    values[number] = _maybe_shared(value, axis)
                elif isinstance(value, Tensor) and value.numel():
                    values[number] = _copied(value, axis, info.batch_size)
            results = operation(*values, shape.numbers())
            return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    return OneRun.apply


_one_input_gradient = _for_one_run(_input_gradient)

example_gradients = _for_one_run(_weight_gradient, shared=0)
"""`launching.weight_gradient` for one run; runs by `vmap`."""


def _copied(values: Tensor, axis: int | None, runs: int) -> Tensor:
    # The compiler copies faster than the operations would, and once for both of them.
    return with_runs(values, axis, runs).contiguous()


def _maybe_shared(values: Tensor, axis: int | None) -> Tensor:
    return (values.unsqueeze(0) if axis is None else values.movedim(axis, 0)).contiguous()
