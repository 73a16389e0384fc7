"""One graph from a function of tensors, compiled and compared with the function, and recorded.

The function is traced first, so the compiler sees only plain tensor operations of fixed shapes:
the user's module, `vmap` and `grad` are already resolved.

A compiler error would not be visible in an audit (a CPU compiler once computed wrong noise), so the
first calls of a compiled graph are also made by the plain one. In a large model the noise is much
longer than the clipped sum and would hide a wrong gradient. Sums are therefore compared by
themselves, tensor by tensor, and updates by their length.

A step of one ResNet18 or of a small transformer has several hundred short kernels. The processor
then takes longer to launch them than a GPU to compute them. A CUDA graph records the kernels once
and launches them together.
"""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from dpaudit._loading import uncollected
from dpaudit.data import Examples
from dpaudit.engine import products
from dpaudit.engine.speed import Precision

Results = tuple[Tensor, ...]
Step = Callable[..., Results]
Distances = Callable[[Results, Results, tuple[Any, ...]], Sequence[tuple[float, float]]]
"""From the results of a fast and of the plain step, and the arguments of both: distances with the
largest that is allowed for each."""

UPDATE_TOLERANCE: dict[Precision, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "tf32": 0.02,
    "bfloat16": 0.1,
}
"""Largest distance of a compiled update from the plain one, relative to the update's length.
Rounding errors are far smaller; wrong noise gives a distance above 1."""

SUM_TOLERANCE: dict[Precision, float] = {
    "float64": 1e-4,
    "float32": 0.01,
    "tf32": 0.2,
    "bfloat16": 0.7,
}
"""The same for clipped sums, for every tensor of parameters. Compiling in bfloat16 changed the sums
of a tensor by up to 11 per cent, and rounding a ResNet18 to bfloat16 by up to 32; a wrong gradient
changes it by about its length."""

SMALL_SHARE = 0.01
"""A tensor with a smaller share of a sum's length is compared relative to this share, because its
gradients may be nothing but rounding, as those of the biases of attention keys."""

CHECKED_CALLS = 3

RECORDING_TOLERANCE = 1e-4
"""Largest distance of a recorded step from the compiled one, which has the same kernels."""

WORTH_RECORDING = 0.5
"""Share of a step's time that the processor spends on launching its kernels."""

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
class Compiled:
    """A function of tensors as one graph, compiled at the first call if requested.

    For few uncompiled calls, tracing takes longer than it saves. The function itself then runs: the
    same operations, so on a CPU the same bits.

    A compiled graph whose first calls differ from those of the uncompiled one is not used. On a GPU
    a compiled graph is then recorded, if most of a call is spent on launching kernels.

    Arguments:
        function: The function to trace. Its control flow must not depend on the values, and all
            calls must have arguments of the same shapes and types. A call of `Compiled` gives the
            first of its results; the others are only compared.
        compiled: Whether to try `torch.compile`.
        calls: Expected number of calls; by default enough for tracing.
        distances: Compares results of the compiled function with those of the plain one; by default
            they are not compared.
    """

    def __init__(
        self,
        function: Step,
        *,
        compiled: bool,
        calls: int = WORTH_TRACING,
        distances: Distances | None = None,
    ) -> None:
        self._plain = function  # the function, later its graph
        self._call = function  # the same, or the compiled graph, or its recording
        self._untraced = compiled or calls >= WORTH_TRACING
        self._untried = compiled
        self._distances = distances
        self._unchecked = 0
        self._unrecorded = False
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            if self._untraced:
                idle = self._untried or products.on_gpu(args[0])  # otherwise it costs little
                self._call = self._plain = traced(self._plain, args, without_idle_nodes=idle)
                self._untraced = False
            results = self._first_compiled(*args) if self._untried else self._call(*args)
            if self._unchecked:
                results = self._checked(results, *args)
            elif self._unrecorded:
                self._record(results, *args)
            return results[0]

    def _first_compiled(self, *args: Any) -> Results:
        self._untried = False
        try:
            with warnings.catch_warnings():
                # The compiler's advice on precision and cores does not concern the user.
                warnings.simplefilter("ignore")
                call = compiled(cast(torch.fx.GraphModule, self._plain), args)
                results = call(*args)
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
        self._unchecked = 0 if self._distances is None else CHECKED_CALLS
        self._unrecorded = results[0].device.type == "cuda"
        return results

    def _checked(self, results: Results, *args: Any) -> Results:
        """The compiled ``results`` if the plain graph agrees, otherwise those of the latter."""
        assert self._distances is not None
        self._unchecked -= 1
        try:
            plain = self._plain(*args)
            wrong = too_far(self._distances(results, plain, args))
        except torch.OutOfMemoryError:
            if self._unchecked == CHECKED_CALLS - 1:
                self.notices = (
                    "the compiled step was not compared with the uncompiled one, which needs more "
                    "memory than is free; use a smaller tile_size",
                )
            self._unchecked = 0
            return results
        if wrong:
            self.notices = (miscompiled(f"torch {torch.__version__}", wrong),)
            self._call, self._unchecked, self._unrecorded = self._plain, 0, False
            return plain
        return results

    def _record(self, results: Results, *args: Any) -> None:
        """Replay the compiled graph from now on, if this is faster and gives the same results."""
        if self._distances is None or not all(bool(r.isfinite().all()) for r in results):
            return  # nothing to compare with; later calls may have finite results
        self._unrecorded = False
        try:
            if launching_share(self._call, args) < WORTH_RECORDING:
                return
            recorded = Recorded(self._call, args)
            distances = self._distances(recorded(*args), results, args)
        except RuntimeError:  # too little memory, or an operation that cannot be recorded
            return
        if all(distance <= RECORDING_TOLERANCE for distance, _ in distances):
            self._call = recorded


def too_far(distances: Sequence[tuple[float, float]]) -> float:
    """The largest distance that is not allowed, or 0."""
    return max((apart for apart, allowed in distances if not apart <= allowed), default=0.0)


def update_distance(result: Tensor, plain: Tensor, start: Tensor) -> float:
    """The distance of two states after a step from ``start``, relative to the step's length."""
    length = float((plain - start).norm())
    return _relative(result, plain, length, float(plain.norm()))


def sum_distance(result: Tensor, plain: Tensor, sizes: Sequence[int], largest: float) -> float:
    """The largest relative distance of the tensors, of these ``sizes``, of two sums.

    ``largest`` is the norm of a sum whose terms do not cancel; 0 if it is not bounded.
    """
    least = SMALL_SHARE * float(plain.norm())
    pairs = zip(*(torch.split(sums, list(sizes), -1) for sums in (result, plain)), strict=True)
    return max(
        _relative(fast, slow, max(least, float(slow.norm())), max(float(slow.norm()), largest))
        for fast, slow in pairs
    )


def _relative(result: Tensor, plain: Tensor, length: float, size: float) -> float:
    """Their distance beyond the rounding of numbers of this ``size``, relative to ``length``."""
    apart = float((result - plain).norm())
    if not math.isfinite(apart):
        # A run that diverged is reported elsewhere; only the fast step's failure counts here.
        return math.inf if bool(plain.isfinite().all()) else 0.0
    rounding = 8 * torch.finfo(plain.dtype).eps * size
    if math.isnan(length):  # another tensor diverged
        return 0.0
    return max(0.0, apart - rounding) / length if length else float(apart > rounding)


def miscompiled(compiler: str, distance: float) -> str:
    """The notice that a fast step is not used."""
    return (
        f"{compiler} compiled the step incorrectly (it differs by {distance:.2g} of its length "
        "from the uncompiled step), so the slower uncompiled step is used"
    )


def compiled(graph: torch.fx.GraphModule, args: tuple[Any, ...]) -> Step:
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
) -> Step:
    graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))  # the same constants
    pieces = pieces_outside(graph)
    call = compiler(graph, [*args, *pieces(*args)])
    return lambda *args: tuple(call([*args, *pieces(*args)]))


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
    output = graph.graph.output_node()
    results = cast(tuple[Any, ...], output.args[0])
    output.meta["user_visible_output_idxs"] = list(range(len(results)))
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


def warm_up(device: torch.device, data: Examples) -> None:
    """Begin early what a game on a GPU needs later, while its canaries are crafted.

    The GPU's driver starts and the data are digested outside of Python's lock. The compiler starts
    processes of its own, which take seconds; until they run it compiles one kernel at a time.
    """
    if device.type != "cuda":
        return

    def start_driver() -> None:
        with contextlib.suppress(RuntimeError):  # reported where the GPU is used
            torch.zeros(1, device=device)

    for task in (start_driver, lambda: data.fingerprint):
        threading.Thread(target=task, daemon=True).start()
    import_compiler()
    with contextlib.suppress(ImportError, AttributeError):  # internal names of torch
        from torch._inductor.async_compile import AsyncCompile

        AsyncCompile.use_process_pool()  # type: ignore[no-untyped-call]


def import_compiler() -> None:
    """Import torch's compiler: 1,400 modules, among which there is no garbage to collect."""
    with uncollected(freeze=False), contextlib.suppress(ImportError):
        from torch._inductor import compile_fx  # noqa: F401


@contextlib.contextmanager
def numerics(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set torch's global switches for a tile, and restore them afterwards.

    On a CPU: one thread, because the order of additions may depend on the number of threads. On a
    GPU: deterministic algorithms, and products in TF32 only in that precision, which is settled.
    """
    tf32 = precision == "tf32"
    threads, matmul = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    before = (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
    try:
        if device.type == "cpu":
            torch.set_num_threads(1)
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        cudnn.allow_tf32 = tf32
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        if device.type == "cpu":
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(matmul)
        cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


@final
class Recorded:
    """A function of tensors on a GPU, recorded once and replayed with other values.

    Every call must launch the same kernels and wait for none.
    """

    def __init__(self, function: Step, args: tuple[Tensor, ...]) -> None:
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
                self._results = function(*self._args)
            for result in self._results:
                result.fill_(torch.nan)  # so that a recording without kernels is not used
        except RuntimeError:
            # A failed recording leaves torch's generator in a state that cannot be used.
            generator.graphsafe_set_state(state)
            raise

    def __call__(self, *args: Tensor) -> Results:
        self._copy(args)
        self._graph.replay()
        first, *others = self._results
        return (first.clone(), *others)  # the next replay overwrites them

    def _copy(self, args: tuple[Tensor, ...]) -> None:
        for own, given in zip(self._args, args, strict=True):
            own.copy_(given)


def launching_share(function: Step, args: tuple[Any, ...]) -> float:
    """Share of a call's time after which the processor has launched all kernels."""
    device = args[0].device
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    function(*args)
    launched = time.perf_counter()
    torch.cuda.synchronize(device)
    return (launched - began) / (time.perf_counter() - began)


# The graph of a function, and what makes it shorter or cheaper to compile.


def traced(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    decomposed: bool = False,
    without_idle_nodes: bool = True,
) -> torch.fx.GraphModule:
    """The graph of a function for arguments of these shapes and types.

    If ``decomposed``, it has only the operations of torch's compiler, which round differently.
    """

    def plain(*args: Tensor) -> Any:  # the tracer would count the "self" of a bound method
        return function(*args)

    with torch.no_grad():
        graph = make_fx(
            plain,
            decomposition_table=_decompositions() if decomposed else None,
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*args)
        return _without_idle_nodes(graph) if without_idle_nodes else graph


def _decompositions() -> dict[Any, Any]:
    import torch._inductor.lowering  # noqa: F401  (some decompositions need it)
    from torch._inductor.decomposition import select_decomp_table  # slow to import

    return cast(dict[Any, Any], select_decomp_table())


def _without_idle_nodes(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph without nodes that change nothing: views of views or of the same shape, taps.

    Nested `vmap` leaves many such views (about a quarter of a transformer's graph), and each costs
    time in every pass of the compiler. A tap adds zeros, which on a GPU costs time where the
    compiler cannot fuse it with the operation before.
    """
    for node in list(graph.graph.nodes):
        node.target = _shape_copied(node)
        while _reshapes(node) and _reshapes(node.args[0]):
            node.update_arg(0, node.args[0].args[0])
        view = node.target in _VIEWS and _layout(node) == _layout(node.args[0])
        # An operation such as unsqueeze_ would change the shape of the value behind the view.
        view = view and not any(in_place(user) for user in node.users)
        if view or _adds_zeros(node):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _shape_copied(node: torch.fx.Node) -> Any:
    """The operation of a node; that without change in place if it only changes the last shape.

    Later nodes use the result of `squeeze_`, not its argument, unless they were traced before.
    """
    if node.target not in _SHAPES_IN_PLACE:
        return node.target
    value = cast(torch.fx.Node, node.args[0])
    return (
        node.target if any(user > node for user in value.users) else _SHAPES_IN_PLACE[node.target]
    )


def _reshapes(node: torch.fx.Node) -> bool:
    """Whether a node only gives a contiguous value another shape, and none changes it in place."""
    if node.target not in _RESHAPES or any(in_place(user) for user in node.users):
        return False
    return bool(cast(torch.fx.Node, node.args[0]).meta["val"].is_contiguous())


def pieces_outside(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Turn the pieces of split arguments into arguments; returns the graph that computes them."""
    outside, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    pieces = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            copies[node], last = outside.node_copy(node), node
        elif node.target in _PIECES and set(node.all_input_nodes) <= copies.keys():
            copies[node] = outside.node_copy(node, copies.__getitem__)
            pieces += [node] if node.target is operator.getitem else []
    for node in pieces:
        with graph.graph.inserting_after(last):
            last = graph.graph.placeholder(f"piece_{node.name}")
        last.meta = dict(node.meta)
        node.replace_all_uses_with(last)
    outside.output(tuple(copies[node] for node in pieces))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return torch.fx.GraphModule(torch.nn.Module(), outside)


def in_place(node: torch.fx.Node) -> bool:
    """Whether a node changes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _adds_zeros(node: torch.fx.Node) -> bool:
    """Whether a node adds the zeros of a tap. On a CPU they stay: -0.0 + 0.0 is another number."""
    if node.target is not torch.ops.aten.add.Tensor or node.meta["val"].device.type == "cpu":
        return False
    first, second = node.args[:2]
    while isinstance(second, torch.fx.Node) and second.target in _VIEWS:
        second = second.args[0]
    if not isinstance(first, torch.fx.Node) or not isinstance(second, torch.fx.Node):
        return False
    zeros: tuple[object, ...] = (torch.ops.aten.zeros.default, torch.ops.aten.new_zeros.default)
    return second.target in zeros and _layout(node) == _layout(first)


def _layout(node: torch.fx.Node) -> tuple[torch.Size, tuple[int, ...]]:
    value: Tensor = node.meta["val"]
    return value.shape, value.stride()


_PIECES: frozenset[object] = frozenset(
    {torch.ops.aten.select.int, torch.ops.aten.split_with_sizes.default, operator.getitem}
)
_RESHAPES: frozenset[object] = frozenset(
    {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
)
_SHAPES_IN_PLACE: dict[object, Callable[..., Any]] = {
    torch.ops.aten.squeeze_.dim: torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze_.dims: torch.ops.aten.squeeze.dims,
    torch.ops.aten.unsqueeze_.default: torch.ops.aten.unsqueeze.default,
}
_VIEWS: frozenset[object] = frozenset(
    {
        torch.ops.aten.alias.default,
        torch.ops.aten.expand.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.view.default,
        torch.ops.aten._unsafe_view.default,
    }
)
