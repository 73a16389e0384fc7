"""The graph of a function of tensors, and what makes it shorter or cheaper to compile."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx


def traced(
    function: Callable[..., Tensor], args: tuple[Any, ...], *, decomposed: bool = False
) -> torch.fx.GraphModule:
    """The graph of a function for arguments of these shapes and types.

    Arguments:
        function: The function to trace.
        args: Arguments of the shapes and types of all calls.
        decomposed: Whether to use only the operations of torch's compiler. They round differently.
    """

    def plain(*args: Tensor) -> Tensor:  # the tracer would count the "self" of a bound method
        return function(*args)

    with torch.no_grad():
        graph = make_fx(
            plain,
            decomposition_table=_decompositions() if decomposed else None,
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*args)
        return _without_idle_nodes(graph)


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
