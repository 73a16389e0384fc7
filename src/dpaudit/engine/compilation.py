"""One graph from a function of tensors, compiled where possible.

The function is traced first, so the compiler sees only plain tensor operations of fixed shapes:
the user's module, `vmap` and `grad` are already resolved.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor

from dpaudit.engine import products
from dpaudit.engine.graphs import in_place, pieces_outside, traced
from dpaudit.engine.replaying import WORTH_RECORDING, Replayed, launching_share
from dpaudit.engine.speed import Precision

TOLERANCE: dict[Precision, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "tf32": 0.02,
    "bfloat16": 0.1,
}
"""Largest distance of a compiled step from the uncompiled one, relative to the step's length.
Rounding errors are far smaller; wrong noise gives a distance above 1."""

SUM_TOLERANCE: dict[Precision, float] = {
    "float64": 1e-4,
    "float32": 0.01,
    "tf32": 0.2,
    "bfloat16": 0.7,
}
"""The same without noise, for every tensor of parameters. Compiling in bfloat16 changed the clipped
sums of a tensor by up to 11 per cent, and rounding a ResNet18 to bfloat16 by up to 32; a wrong
gradient changes it by about its length."""

SMALL_SHARE = 0.01
"""A tensor with a smaller share of a step's length is compared relative to this share, because its
gradients may be nothing but rounding, as those of the biases of attention keys."""

REPLAY_TOLERANCE = 1e-4
"""The same for a recorded step, which has the kernels of the compiled one."""

CHECKED_CALLS = 3
CHECKED_RUNS = 4

WORTH_TRACING = 80
"""Calls that save as much time as tracing takes: 82 to 109 on five kinds of small networks."""

LARGE = 2000
"""A graph of more nodes has many kernels to compile and spends its time in products."""

FEW_TRIALS: dict[str, object] = {"triton.autotune_pointwise": False, "deterministic": True}
"""Options of torch's compiler for a large graph; one that a version does not have is left out."""

Quiet = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], float]]
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
        tolerance: Largest distance of the compiled result from the uncompiled one, relative to
            the length of the step; `None` skips the check.
        sum_tolerance: The same for a call without noise.
        tensors: Sizes of the tensors of parameters, which are compared one by one without noise: a
            wrong gradient of one may be short beside those of the others.
        moves: Whether the step leads from the first argument to the result; otherwise the result is
            a sum without noise.
        quiet: Changes the arguments of a call such that it adds no noise, and gives the length of
            the longest step without noise; `None` if no call adds noise.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        *,
        compiled: bool,
        calls: int = WORTH_TRACING,
        tolerance: float | None = None,
        sum_tolerance: float | None = None,
        tensors: Sequence[int] = (),
        moves: bool = True,
        quiet: Quiet | None = None,
    ) -> None:
        self._plain = function  # the function, later its graph
        self._call = function  # the same, or the compiled graph
        self._untraced = compiled or calls >= WORTH_TRACING
        self._untried = compiled
        self._tolerance, self._sum_tolerance = tolerance, sum_tolerance
        self._tensors, self._moves, self._quiet = tensors, moves, quiet
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
        self._unchecked = 0 if self._tolerance is None else CHECKED_CALLS
        self._unrecorded = result.device.type == "cuda"
        return result

    def _checked(self, result: Tensor, *args: Any) -> Tensor:
        """The compiled ``result`` if the uncompiled graph agrees, otherwise that of the latter."""
        self._unchecked -= 1
        try:
            plain = self._plain(*args)
            wrong = self._wrong(result, plain, args, self._tolerance)
            if not wrong and self._quiet is not None:
                (calm, longest), self._quiet = self._quiet(args), None
                compiled_sum, plain_sum = self._call(*calm), self._plain(*calm)
                wrong = self._wrong(compiled_sum, plain_sum, args, self._sum_tolerance, longest)
        except torch.OutOfMemoryError:
            if self._unchecked == CHECKED_CALLS - 1:
                self.notices = (
                    "the compiled step was not compared with the uncompiled one, which needs more "
                    "memory than is free; use a smaller tile_size",
                )
            self._unchecked = 0
            return result
        if wrong:
            self._call, self._unchecked, self._unrecorded = self._plain, 0, False
            return plain
        return result

    def _wrong(
        self,
        result: Tensor,
        plain: Tensor,
        args: tuple[Any, ...],
        most: float | None,
        longest: float | None = None,
    ) -> bool:
        """Whether a compiled result is wrong; if so, a notice says it.

        Without noise, ``longest`` is the length of the step if its terms did not cancel.
        """
        difference = self._apart(result, plain, args, longest)
        if most is None or difference <= most:
            return False
        self.notices = (_miscompiled(f"torch {torch.__version__}", difference),)
        return True

    def _apart(
        self, result: Tensor, plain: Tensor, args: tuple[Any, ...], longest: float | None = None
    ) -> float:
        start = args[0] if self._moves else torch.zeros_like(plain)
        noisy = self._moves and longest is None
        return _apart(result, plain, start, longest or 0.0, () if noisy else self._tensors)

    def _record(self, result: Tensor, *args: Any) -> None:
        """Replay the compiled graph from now on, if this is faster and gives the same result."""
        if not bool(result.isfinite().all()):
            return  # nothing to compare with; later calls may have finite results
        self._unrecorded = False
        try:
            if launching_share(self._call, args) < WORTH_RECORDING:
                return
            replayed = Replayed(self._call, args)
            difference = self._apart(replayed(*args), result, args)
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
    if len(graph.graph.nodes) > LARGE and products.on_gpu(args[0]):
        try:
            with _few_trials():
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
def _few_trials() -> Iterator[None]:
    """Let the compiler choose the kernels' block sizes without trials: 7 s for GPT-2."""
    from torch._inductor import config

    with contextlib.ExitStack() as stack:
        for option, value in FEW_TRIALS.items():
            with contextlib.suppress(AttributeError, KeyError):  # not in this torch
                stack.enter_context(config.patch({option: value}))
        yield


@final
class Verified:
    """A fast step whose first calls are compared with a slow one for the first few runs.

    As in `Traced`, the first call is also compared without noise.

    Several threads may call it; the slow step, which taps a module, is called by one at a time.

    Arguments:
        fast: The step to use; its first argument has one row for each run.
        slow: The same step, which is called for one run at a time in comparisons.
        rows: Selects runs in a step's arguments.
        tolerance: Largest distance of the results, relative to the length of the step.
        sum_tolerance: The same for a call without noise.
        tensors: As for `Traced`.
        quiet: As for `Traced`.
        name: What compiled ``fast``, for the notice.
    """

    def __init__(
        self,
        fast: Callable[..., Tensor],
        slow: Callable[..., Tensor],
        rows: Callable[[slice, tuple[Any, ...]], tuple[Any, ...]],
        *,
        tolerance: float,
        sum_tolerance: float,
        tensors: Sequence[int],
        quiet: Quiet | None,
        name: str,
    ) -> None:
        self._fast, self._slow, self._rows = fast, slow, rows
        self._tolerance, self._sum_tolerance = tolerance, sum_tolerance
        self._tensors, self._quiet, self._name = tensors, quiet, name
        self._unchecked, self._wrong, self._lock = CHECKED_CALLS, False, threading.Lock()
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            if self._unchecked > 0:
                self._check(args)
            if not self._wrong:
                return self._fast(*args)
            with self._lock:
                return self._slow(*args)

    @property
    def trusted(self) -> bool:
        """Whether the fast step has passed all comparisons."""
        return self._unchecked <= 0 and not self._wrong

    def _check(self, args: tuple[Any, ...]) -> None:
        with self._lock:
            if self._wrong or self._unchecked <= 0:
                return
            self._unchecked -= 1
            few = self._rows(slice(CHECKED_RUNS), args)
            self._compare(few, self._tolerance)
            if self._quiet is not None and not self._wrong:
                (calm, longest), self._quiet = self._quiet(few), None
                self._compare(calm, self._sum_tolerance, longest)

    def _compare(
        self, few: tuple[Any, ...], tolerance: float, longest: float | None = None
    ) -> None:
        """Compare one call; if the fast step is wrong, it is not used any more."""
        each = [self._rows(slice(run, run + 1), few) for run in range(len(few[0]))]
        slow = torch.cat([self._slow(*one) for one in each])
        tensors = () if longest is None else self._tensors
        difference = _apart(self._fast(*few), slow, few[0], longest or 0.0, tensors)
        if difference > tolerance:
            self._wrong = True
            self.notices = (_miscompiled(self._name, difference),)


def _apart(
    result: Tensor,
    plain: Tensor,
    start: Tensor,
    longest: float = 0.0,
    tensors: Sequence[int] = (),
) -> float:
    """The distance of two end points of a step, relative to its length and without rounding.

    Arguments:
        result: The end point by the fast step.
        plain: The end point by the slow step.
        start: The starting point.
        longest: Length of the step if its terms did not cancel; 0 if they do not.
        tensors: Sizes of tensors along the last axis, of which the one with the largest relative
            distance counts; by default the whole is one.
    """
    sizes = list(tensors) or [plain.shape[-1]]
    whole = float((plain - start).norm())
    least = math.inf if math.isnan(whole) else SMALL_SHARE * whole
    parts = zip(*(torch.split(one, sizes, -1) for one in (result, plain, start)), strict=True)
    return max(_part_apart(*part, longest=longest, least=least) for part in parts)


def _part_apart(
    result: Tensor, plain: Tensor, start: Tensor, *, longest: float, least: float
) -> float:
    length, apart = max(least, float((plain - start).norm())), float((result - plain).norm())
    # For a short step, the rounding of its end point or of its terms dominates.
    rounding = 8 * torch.finfo(plain.dtype).eps * max(float(plain.norm()), longest)
    if not math.isfinite(apart):
        # A run that diverged is reported elsewhere; only the fast step's failure counts here.
        return math.inf if bool(plain.isfinite().all()) else 0.0
    return max(0.0, apart - rounding) / length if length else float(apart > rounding)


def _miscompiled(compiler: str, difference: float) -> str:
    return (
        f"{compiler} compiled the step incorrectly (it differs by {difference:.2g} of its length "
        "from the uncompiled step), so the slower uncompiled step is used"
    )


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
