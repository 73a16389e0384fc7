"""From a function of tensors to one graph, compiled where that is possible.

The function is traced first, so that the compiler meets plain tensor operations only: the user's
module, `vmap` and `grad` are gone by then, and shapes are fixed.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from dpaudit.games.speed import Precision


@final
class Traced:
    """A function of tensors as one graph, compiled at the first call if that was asked for.

    Arguments:
        function: What to trace. It must not depend on the values of its arguments.
        example: Arguments of the shapes and types that all calls will have.
        compiled: Whether to try `torch.compile`.
    """

    def __init__(
        self, function: Callable[..., Tensor], example: tuple[Any, ...], *, compiled: bool
    ) -> None:
        def plain(*args: Tensor) -> Tensor:  # the tracer counts the "self" of a bound method
            return function(*args)

        trace = make_fx(plain, tracing_mode="fake", _allow_non_fake_inputs=True)
        with torch.no_grad():
            self._graph = trace(*example)
        self._call: Callable[..., Tensor] = self._graph
        self._untried = compiled
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            return self._first_compiled(*args) if self._untried else self._call(*args)

    def _first_compiled(self, *args: Any) -> Tensor:
        self._untried = False
        compiled = torch.compile(self._graph, dynamic=False, fullgraph=True)
        try:
            with warnings.catch_warnings():
                # Advice of the compiler about precision and cores is ours to take, not the user's.
                warnings.simplefilter("ignore")
                result: Tensor = compiled(*args)
        except torch.OutOfMemoryError:
            self._untried = True
            raise
        except Exception as error:  # the compiler's own, of many types: none may stop an audit
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self.notices = (
                f"torch.compile did not work here, so this will be slower ({reason[0]}); "
                "it needs a C++ compiler on a CPU, and triton on a GPU",
            )
            return self._call(*args)
        self._call = compiled
        return result


@contextlib.contextmanager
def numerics(precision: Precision, device: torch.device) -> Iterator[None]:
    """Torch's global switches as a tile needs them, and back as they were afterwards.

    One thread on a CPU, because the order of additions may depend on the number of threads;
    deterministic algorithms, and products in TF32 only if asked for, on a GPU.
    """
    threads, matmul = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    before = (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
    try:
        if device.type == "cpu":
            torch.set_num_threads(1)
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        cudnn.allow_tf32 = precision == "tf32"
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        if device.type == "cpu":
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(matmul)
        cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
