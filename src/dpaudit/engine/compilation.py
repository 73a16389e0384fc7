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

from dpaudit.engine.speed import Precision

TOLERANCE: dict[Precision, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "tf32": 0.02,
    "bfloat16": 0.1,
}
"""How far a compiled step may be from the uncompiled one, as a share of the step's length. Rounding
stays far below; noise of the wrong words is above 1."""

CHECKED_CALLS = 3


@final
class Traced:
    """A function of tensors as one graph, compiled at the first call if that was asked for.

    A compiler may be wrong (on a CPU one once took the noise of some steps from the wrong words),
    and no audit would notice. So the first calls are also made uncompiled, and a compiled graph
    that disagrees is not used.

    Arguments:
        function: What to trace. It must not depend on the values of its arguments.
        example: Arguments of the shapes and types that all calls will have.
        compiled: Whether to try `torch.compile`.
        tolerance: How far the compiled result may be from the uncompiled one, as a share of how
            far that is from the first argument; `None`: not checked.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        example: tuple[Any, ...],
        *,
        compiled: bool,
        tolerance: float | None = None,
    ) -> None:
        def plain(*args: Tensor) -> Tensor:  # the tracer counts the "self" of a bound method
            return function(*args)

        trace = make_fx(plain, tracing_mode="fake", _allow_non_fake_inputs=True)
        with torch.no_grad():
            self._graph = trace(*example)
        self._call: Callable[..., Tensor] = self._graph
        self._untried = compiled
        self._tolerance = tolerance
        self._unchecked = 0
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            result = self._first_compiled(*args) if self._untried else self._call(*args)
            return self._checked(result, *args) if self._unchecked else result

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
        self._unchecked = 0 if self._tolerance is None else CHECKED_CALLS
        return result

    def _checked(self, result: Tensor, *args: Any) -> Tensor:
        """The compiled ``result`` where the uncompiled graph agrees; otherwise what that says."""
        self._unchecked -= 1
        try:
            plain: Tensor = self._graph(*args)
        except torch.OutOfMemoryError:
            return result  # uncompiled it takes more memory than there is: it cannot be checked
        length, apart = (plain - args[0]).norm(), (result - plain).norm()
        # A step that is short beside where it starts is lost in the rounding of its end.
        rounding = 8 * torch.finfo(plain.dtype).eps * plain.norm()
        if self._tolerance is None or not bool(apart > self._tolerance * length + rounding):
            return result
        self._call, self._unchecked = self._graph, 0
        self.notices = (
            f"torch {torch.__version__} compiled a step that gives other numbers than the "
            f"uncompiled one ({float(apart / length):.2g} of its length apart), so this will be "
            "slower: the compiled one is not used",
        )
        return plain


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
