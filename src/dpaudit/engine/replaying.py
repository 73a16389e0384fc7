"""Steps on a GPU that are launched at once instead of kernel by kernel.

A step of one ResNet18 or of a small transformer has several hundred short kernels. The processor
then takes longer to launch them than the GPU to compute them. A CUDA graph records the kernels once
and launches them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

WORTH_RECORDING = 0.5
"""Share of a step's time that the processor spends on launching its kernels."""


@final
class Replayed:
    """A function of tensors on a GPU, recorded once and replayed with other values.

    Arguments:
        function: The function. Every call must launch the same kernels and wait for none.
        args: Arguments of the shapes, strides and types of all calls, all on one GPU.
    """

    def __init__(self, function: Callable[..., Tensor], args: tuple[Tensor, ...]) -> None:
        self._args = [
            torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device)
            for arg in args
        ]
        self._copy(args)
        device, self._graph = args[0].device, torch.cuda.CUDAGraph()
        # Without a stream of its own, torch would record on the first GPU that was ever used.
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        generator = torch.cuda.default_generators[device.index]
        state = generator.clone_state()
        try:
            # Other threads may use the GPU meanwhile. A failed recording does not restore the
            # stream, so that it is entered here, too.
            with (
                torch.cuda.device(device),
                torch.cuda.stream(stream),
                torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._result = function(*self._args)
            self._result.fill_(torch.nan)  # so that a recording without kernels is not used
        except RuntimeError:
            # A failed recording leaves torch's generator in a state that cannot be used.
            generator.graphsafe_set_state(state)
            raise

    def __call__(self, *args: Tensor) -> Tensor:
        self._copy(args)
        self._graph.replay()
        return self._result.clone()  # the next replay overwrites it

    def _copy(self, args: tuple[Tensor, ...]) -> None:
        for own, given in zip(self._args, args, strict=True):
            own.copy_(given)


def launching_share(function: Callable[..., Tensor], args: tuple[Any, ...]) -> float:
    """Share of a call's time after which the processor has launched all kernels."""
    device = args[0].device
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    function(*args)
    launched = time.perf_counter()
    torch.cuda.synchronize(device)
    return (launched - began) / (time.perf_counter() - began)
