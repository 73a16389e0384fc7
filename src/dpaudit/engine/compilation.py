"""One graph from a function of tensors, compiled where possible.

The function is traced first, so the compiler sees only plain tensor operations of fixed shapes:
the user's module, `vmap` and `grad` are already resolved.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor

from dpaudit.engine import products
from dpaudit.engine.comparing import CHECKED_CALLS, UNCOMPARED, Comparison, miscompiled
from dpaudit.engine.graphs import in_place, pieces_outside, traced
from dpaudit.engine.replaying import WORTH_RECORDING, Replayed, launching_share
from dpaudit.engine.speed import Precision

REPLAY_TOLERANCE = 1e-4
"""Largest distance of a recorded step from the compiled one, which has the same kernels, relative
to the step's length."""

WORTH_TRACING = 80
"""Calls that save as much time as tracing takes: 82 to 109 on five kinds of small networks."""

LARGE = 2000
"""A graph of more nodes has many kernels to compile and spends its time in products."""

FEW_TRIALS: dict[str, object] = {"triton.autotune_pointwise": False, "deterministic": True}
"""Options of torch's compiler for a large graph: no trials of block sizes, 7 s for GPT-2."""

UNPADDED: dict[str, object] = {"comprehensive_padding": False}
"""Options for a graph with the gradient of a max-pooling. Torch 2.11 wrote it to a buffer with
padded rows and read it as if it had others, which changed the gradients of the layers before."""

_Boxed = Callable[[list[Any]], Sequence[Tensor]]


@final
class Traced:
    """A function of tensors as one graph, compiled at the first call if requested.

    For few uncompiled calls, tracing takes longer than it saves. The function itself then runs: the
    same operations, so on a CPU the same bits.

    A compiler error would not be visible in an audit (a CPU compiler once computed wrong noise).
    The first calls are therefore also made uncompiled, and a compiled graph with different results
    is not used. In a large model the noise is much longer than the clipped sum and would hide a
    wrong gradient, so the first call is also compared without noise.

    On a GPU a compiled graph is then recorded, if most of a call is spent on launching kernels.

    Arguments:
        function: The function to trace. Its control flow must not depend on the values, and all
            calls must have arguments of the same shapes and types.
        compiled: Whether to try `torch.compile`.
        calls: Expected number of calls; by default enough for tracing.
        comparison: How the compiled step is compared with the uncompiled one; by default it is not.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        *,
        compiled: bool,
        calls: int = WORTH_TRACING,
        comparison: Comparison = UNCOMPARED,
    ) -> None:
        self._plain = function  # the function, later its graph
        self._call = function  # the same, or the compiled graph
        self._untraced = compiled or calls >= WORTH_TRACING
        self._untried = compiled
        self._comparison, self._quiet = comparison, comparison.quiet
        self._unchecked = 0
        self._unrecorded = False
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            if self._untraced:
                self._call = self._plain = traced(self._plain, args)
                self._untraced = False
            result = self._first_compiled(*args) if self._untried else self._call(*args)
            if self._unchecked:
                return self._checked(result, *args)
            if self._unrecorded:
                self._record(result, *args)
            return result

    def _first_compiled(self, *args: Any) -> Tensor:
        self._untried = False
        try:
            with warnings.catch_warnings():
                # The compiler's advice on precision and cores does not concern the user.
                warnings.simplefilter("ignore")
                call = compiled(cast(torch.fx.GraphModule, self._plain), args)
                result = call(*args)
        except torch.OutOfMemoryError:
            self._untried = True
            raise
        except Exception as error:  # compilers raise many types, and none may stop an audit
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self.notices = (
                f"torch.compile failed, so this will be slower ({reason[0]}); it needs a C++ "
                "compiler on a CPU and triton on a GPU",
            )
            return self._call(*args)
        self._call = call
        self._unchecked = 0 if self._comparison is UNCOMPARED else CHECKED_CALLS
        self._unrecorded = result.device.type == "cuda"
        return result

    def _checked(self, result: Tensor, *args: Any) -> Tensor:
        """The compiled ``result`` if the uncompiled graph agrees, otherwise that of the latter."""
        self._unchecked -= 1
        try:
            plain = self._plain(*args)
            wrong = self._comparison.wrong(result, plain, args[0])
            if not wrong and self._quiet is not None:
                (calm, longest), self._quiet = self._quiet(args), None
                sums = self._call(*calm), self._plain(*calm)
                wrong = self._comparison.wrong_without_noise(*sums, args[0], longest)
        except torch.OutOfMemoryError:
            if self._unchecked == CHECKED_CALLS - 1:
                self.notices = (
                    "the compiled step was not compared with the uncompiled one, which needs more "
                    "memory than is free; use a smaller tile_size",
                )
            self._unchecked = 0
            return result
        if wrong:
            self.notices = (miscompiled(f"torch {torch.__version__}", wrong),)
            self._call, self._unchecked, self._unrecorded = self._plain, 0, False
            return plain
        return result

    def _record(self, result: Tensor, *args: Any) -> None:
        """Replay the compiled graph from now on, if this is faster and gives the same result."""
        if not bool(result.isfinite().all()):
            return  # nothing to compare with; later calls may have finite results
        self._unrecorded = False
        try:
            if launching_share(self._call, args) < WORTH_RECORDING:
                return
            replayed = Replayed(self._call, args)
            difference = self._comparison.distance(replayed(*args), result, args[0])
        except RuntimeError:  # too little memory, or an operation that cannot be recorded
            return
        if difference <= REPLAY_TOLERANCE:
            self._call = replayed


def compiled(graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> Callable[..., Tensor]:
    """A compiled copy of the graph of a function, for arguments of these shapes and types.

    The graph is given to torch's compiler directly. `torch.compile` would trace it once more and
    check at every call that the arguments have the same types and shapes.

    The parameters are slices of one tensor. Inside the graph their offsets would be constants of
    the generated kernels, so that equal layers would have different kernels: 227 instead of 81 for
    the twelve blocks of GPT-2. The slices are therefore arguments of the compiled graph.
    """
    pools = graph.graph.find_nodes(
        op="call_function", target=torch.ops.aten.max_pool2d_with_indices_backward.default
    )
    with _options(UNPADDED if pools else {}):
        if len(graph.graph.nodes) > LARGE and products.on_gpu(args[0]):
            try:
                with _options(FEW_TRIALS):
                    return _compiled_by(_last_stage, traced(graph, args, decomposed=True), args)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # it uses internal functions, which another torch may not have
                return _compiled_by(_whole_compiler, graph, args)
        return _compiled_by(_whole_compiler, graph, args)


def _compiled_by(
    compiler: Callable[[torch.fx.GraphModule, list[Any]], _Boxed],
    graph: torch.fx.GraphModule,
    args: tuple[Any, ...],
) -> Callable[..., Tensor]:
    graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # the same constants
    pieces = pieces_outside(graph)
    output = graph.graph.output_node()
    output.args = (output.args,)  # compilers expect a tuple
    graph.recompile()
    call = compiler(graph, [*args, *pieces(*args)])
    return lambda *args: call([*args, *pieces(*args)])[0]


def _whole_compiler(graph: torch.fx.GraphModule, args: list[Any]) -> _Boxed:
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile as inductor  # slow to import
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # The compiler's caches on disk need an environment of shapes, though all shapes are fixed.
    fixed = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    with tracing(TracingContext(fixed)):
        call = inductor(graph, args)
    return lambda args: cast(Sequence[Tensor], call(*args))


def _last_stage(graph: torch.fx.GraphModule, args: list[Any]) -> _Boxed:
    """The last stage of the compiler alone, for a decomposed graph.

    The stages before it look for gradients, for arguments that are changed in place and for
    patterns, none of which a step has.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.fx_passes.post_grad import remove_noop_ops
    from torch._inductor.virtualized import V

    if any(map(in_place, graph.graph.nodes)):
        raise ValueError("the last stage needs a graph without changes in place")
    graph.graph.output_node().meta["user_visible_output_idxs"] = [0]
    fakes = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    with V.set_fake_mode(fakes[0].fake_mode), tracing(TracingContext(fakes[0].fake_mode)):
        remove_noop_ops(graph.graph)
        return cast(_Boxed, compile_fx_inner(graph, fakes, is_inference=True))


@contextlib.contextmanager
def _options(chosen: dict[str, object]) -> Iterator[None]:
    """Set options of torch's compiler; one that this version does not have is left out."""
    from torch._inductor import config

    with contextlib.ExitStack() as stack:
        for option, value in chosen.items():
            with contextlib.suppress(AttributeError, KeyError):
                stack.enter_context(config.patch({option: value}))
        yield


@contextlib.contextmanager
def numerics(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set torch's global switches for a tile, and restore them afterwards.

    On a CPU: one thread, because the order of additions may depend on the number of threads. On a
    GPU: deterministic algorithms, and products in TF32 only if requested.
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
