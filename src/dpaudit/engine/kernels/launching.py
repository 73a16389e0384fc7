"""Compiles and starts the kernels of ``kernels.cu``.

A kernel is compiled for the sizes of one layer, so that the compiler knows all its loops.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, final

import torch
from torch import Tensor

from dpaudit._cores import cores
from dpaudit.engine.kernels.layout import (
    Layer,
    Pair,
    Plan,
    Shape,
    input_plan,
    output_plan,
    weight_plan,
)

_SOURCE = files(__package__).joinpath("kernels.cu").read_text()
_ENOUGH_BLOCKS = 2048
"""Blocks of threads that keep a whole GPU busy."""


@functools.cache
def usable() -> bool:
    """Whether this torch and GPU can compile and run the kernels."""
    compiles = hasattr(torch.cuda, "_compile_kernel") and torch.version.hip is None
    return torch.cuda.is_available() and compiles and torch.cuda.get_device_capability() >= (8, 0)


def forward(weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """The block's outputs, and which output of the convolution each one is.

    The latter is the position in the window, row by row; -1 where the ReLU gives 0. It is empty if
    neither a ReLU nor a pooling follows.

    Arguments:
        weight: (runs, output channels, channels, height, width).
        bias: (runs, output channels).
        inputs: (runs, examples, channels, height, width); with 1 for runs if all runs share them.
        shape: The block.
    """
    runs, outputs = weight.shape[:2]
    groups, examples = inputs.shape[:2]
    layer = _layer(inputs, outputs, shape, shared=groups < runs)
    kernel = _compiled(output_plan, layer, inputs.device)
    out = inputs.new_empty(runs, examples, outputs, *shape.windows(inputs.shape[3:]))
    which = torch.empty(
        out.shape if shape.selects else (0,), dtype=torch.int8, device=inputs.device
    )
    rows = runs // groups * outputs
    tiles = -(-rows // (16 * kernel["TILES_M"]))
    grid = (_sharing(examples, kernel, tiles * groups), tiles, groups)
    kernel.start(grid, inputs, weight.contiguous(), bias.contiguous(), out, which, rows, examples)
    return out, which


def weight_gradient(
    inputs: Tensor, gradient: Tensor, which: Tensor, shape: Shape
) -> tuple[Tensor, Tensor]:
    """Every example's gradients of weight and bias, as (runs, examples, *parameter)."""
    groups, examples, channels = inputs.shape[:3]
    runs, _, outputs = gradient.shape[:3]
    layer = _layer(inputs, outputs, shape, shared=groups < runs)
    kernel = _compiled(weight_plan, layer, inputs.device)
    out = gradient.new_empty(runs, examples, outputs, channels, *shape.kernel)
    out_bias = gradient.new_empty(runs, examples, outputs)
    rows = runs // groups * outputs
    tiles = -(-rows // (16 * kernel["SETS"]))
    grid = (-(-examples // kernel["EXAMPLES"]), tiles, groups * kernel["COLUMN_GROUPS"])
    kernel.start(
        grid, inputs.contiguous(), gradient.contiguous(), which, out, out_bias, rows, examples
    )
    return out, out_bias


def input_gradient(
    weight: Tensor, gradient: Tensor, which: Tensor, size: Pair, shape: Shape
) -> Tensor:
    """The gradient of the block's inputs, from that of its outputs.

    Arguments:
        weight: As in `forward`.
        gradient: (runs, examples, output channels, height, width) of the outputs.
        which: From `forward`.
        size: Height and width of the inputs.
        shape: The block.
    """
    runs, outputs, channels = weight.shape[:3]
    examples = gradient.shape[1]
    out = gradient.new_empty(runs, examples, channels, *size)
    kernel = _compiled(input_plan, _layer(out, outputs, shape), out.device)
    grid = (_sharing(examples, kernel, runs), runs, 1)
    kernel.start(grid, weight.contiguous(), gradient.contiguous(), which, out, examples)
    return out


@final
@dataclass(frozen=True)
class _Kernel:
    plan: Plan
    function: Any

    def __getitem__(self, name: str) -> int:
        return self.plan.constants[name]

    def start(self, grid: tuple[int, int, int], *arguments: Tensor | int) -> None:
        with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]
            _launch(self.function, grid, 32 * self["WARPS"], 4 * self.plan.words, arguments)


def compile_ahead(layers: Iterable[Layer], device: torch.device) -> None:
    """Begin to compile the kernels of some layers, while torch traces and compiles the step.

    The inputs of the first layer are assumed to be the examples, which all runs share.
    """
    for number, layer in enumerate(layers):
        first = number == 0
        for plan in (output_plan, weight_plan) if first else (output_plan, weight_plan, input_plan):
            shared = first and plan is not input_plan
            _compiling(plan, replace(layer, shared=shared), device)


def _compiled(plan: Callable[[Layer], Plan], layer: Layer, device: torch.device) -> _Kernel:
    return _compiling(plan, layer, device).result()


@functools.cache
def _compiling(
    plan: Callable[[Layer], Plan], layer: Layer, device: torch.device
) -> Future[_Kernel]:
    """A kernel that is compiled in a thread: the compiler does not hold Python's lock."""
    return _threads().submit(_compile, plan, layer, device)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(8, cores()), thread_name_prefix="kernels")


def _compile(plan: Callable[[Layer], Plan], layer: Layer, device: torch.device) -> _Kernel:
    made = plan(layer)
    started = torch.zeros(1, device=device)  # makes the GPU's context that of this thread
    with torch.cuda.device_of(started):  # type: ignore[no-untyped-call]
        function = torch.cuda._compile_kernel(made.definitions(layer) + _SOURCE, "kernel")
        function.set_shared_memory_config(4 * made.words)
    return _Kernel(made, function)


def _launch(
    function: Any,
    grid: tuple[int, int, int],
    threads: int,
    memory: int,
    arguments: Sequence[Tensor | int],
) -> None:
    """Start a kernel; what torch does for it, without opening the driver's library each time."""
    values = [
        ctypes.c_void_p(value.data_ptr()) if isinstance(value, Tensor) else ctypes.c_int(value)
        for value in arguments
    ]
    places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    error = _driver().cuLaunchKernel(
        function.func, *grid, threads, 1, 1, memory, stream, places, None
    )
    if error:
        raise RuntimeError(f"a CUDA kernel could not be started: error {error} of the driver")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _layer(inputs: Tensor, outputs: int, shape: Shape, shared: bool = False) -> Layer:
    channels, height, width = inputs.shape[2:]
    return Layer(
        shape=shape,
        channels=channels,
        size=(height, width),
        outputs=outputs,
        shared=shared,
        halved=inputs.dtype == torch.bfloat16,
    )


def _sharing(examples: int, kernel: _Kernel, blocks: int) -> int:
    """Blocks of threads that share the examples: each prepares the weights once."""
    return min(-(-examples // kernel["EXAMPLES"]), max(1, -(-_ENOUGH_BLOCKS // blocks)))
