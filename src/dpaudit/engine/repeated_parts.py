"""A graph with repeated parts, such as the blocks of a transformer, with each part compiled once.

The compiler's time grows with the size of the graph, and it does not notice that a transformer's
blocks are all the same. Here the traced graph is cut where its list of operations repeats. Equal
parts share one compiled function, so the time no longer grows with the number of blocks.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from dpaudit._arrays import Integers

SHORTEST_PART = 20
"""Number of operations from which a repeated part is worth a compiled function of its own."""

LEAST_REPEATED = 150
"""Number of operations that the copies of a part must save. The ten rounds of the noise have fewer:
cutting them would write every intermediate result to memory."""

LEAST_SAVED = 1000
"""Number of operations that all copies must save together: about ten seconds of compiling."""


_VIEWS = frozenset(
    {
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.expand.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.squeeze.dim,
        torch.ops.aten.squeeze.dims,
        torch.ops.aten.transpose.int,
        torch.ops.aten.unsqueeze.default,
        torch.ops.aten.view.default,
    }
)
"""Views of whole values. Those of a slice differ between copies of a part."""


@final
@dataclass(frozen=True, kw_only=True)
class _Part:
    """Consecutive operations of a graph as a function of their own."""

    module: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    finished: tuple[Node, ...]  # values that no later part uses


@final
class RepeatedParts:
    """Calls the parts of a graph one after the other; equal parts are one compiled function.

    Arguments:
        graph: The whole graph, of plain tensor operations of fixed shapes.
        parts: Its parts in order.
        compiler: Compiles one part; it is called once for each group of equal parts.
    """

    def __init__(
        self,
        graph: GraphModule,
        parts: Sequence[_Part],
        compiler: Callable[[GraphModule], Callable[..., Any]],
    ) -> None:
        functions: dict[object, Callable[..., Any]] = {}
        self._parts: list[tuple[_Part, Callable[..., Any]]] = []
        for part in parts:
            identity = _identity(part)
            if identity not in functions:
                functions[identity] = compiler(part.module)
            self._parts.append((part, functions[identity]))
        self.functions = len(functions)
        nodes = graph.graph.nodes
        self._arguments = [node for node in nodes if node.op == "placeholder"]
        self._constants = {
            node: getattr(graph, str(node.target)) for node in nodes if node.op == "get_attr"
        }
        (self._result,) = graph.graph.output_node().args

    def __call__(self, *args: Tensor) -> Tensor:
        values: dict[Any, Any] = dict(zip(self._arguments, args, strict=True)) | self._constants
        for part, function in self._parts:
            found = function(*(values[node] for node in part.inputs))
            values.update(zip(part.outputs, found, strict=True))
            for node in part.finished:
                del values[node]
        result: Tensor = values[self._result]
        return result


def repeated_parts(
    graph: GraphModule,
    compiler: Callable[[GraphModule], Callable[..., Any]],
    *,
    least_saved: int | None = None,
) -> RepeatedParts | None:
    """The graph in parts, or `None` if too little of it repeats.

    Arguments:
        graph: A graph of plain tensor operations of fixed shapes, with one result.
        compiler: Compiles one part; it is called once for each group of equal parts.
        least_saved: Number of operations that must be saved; `None` takes `LEAST_SAVED`.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    (result,) = graph.graph.output_node().args
    if not isinstance(result, Node) or any(_changes_arguments(node) for node in nodes):
        return None
    numbers: dict[object, int] = {}
    symbols = np.array([numbers.setdefault(_symbol(node), len(numbers)) for node in nodes])
    cuts = list(_cuts(symbols, 0, len(nodes)))
    if sum(saved for _, saved in cuts) < (LEAST_SAVED if least_saved is None else least_saved):
        return None
    bounds = sorted({0, len(nodes), *(_movable(nodes, place) for place, _ in cuts)})
    pieces = [nodes[first:last] for first, last in itertools.pairwise(bounds)]
    return RepeatedParts(graph, _parts(pieces, result), compiler)


def _cuts(symbols: Integers, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Places to cut between ``first`` and ``last``, with the operations saved by each cut.

    A part repeats where the list of operations equals itself shifted by the part's length.
    """
    saved, start, length, copies = 0, first, 0, 1
    for shift in range(SHORTEST_PART, (last - first) // 2 + 1):
        place, equal = _longest(symbols[first : last - shift] == symbols[first + shift : last])
        if equal // shift * shift > saved:
            saved, start, length = equal // shift * shift, first + place, shift
            copies = equal // shift + 1
    if saved >= LEAST_REPEATED:
        yield from _cuts(symbols, first, start)
        yield start, 0
        yield from ((start + copy * length, length) for copy in range(1, copies))
        yield start + copies * length, 0
        yield from _cuts(symbols, start + copies * length, last)


def _longest(where: Any) -> tuple[int, int]:
    """The start and the length of the longest run of `True`."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], where.astype(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    return int(edges[2 * longest]), int(lengths[longest])


def _movable(nodes: Sequence[Node], place: int) -> int:
    """The next place that does not separate an operation from the elements of its result."""
    while place < len(nodes) and nodes[place].target is operator.getitem:
        place += 1
    return place


def _parts(pieces: Sequence[Sequence[Node]], result: Node) -> list[_Part]:
    places = {node: place for place, node in enumerate(result.graph.nodes)}
    pieces = [_with_views(piece, places) for piece in pieces]
    last_use: dict[Node, int] = {result: len(pieces)}
    for number, piece in enumerate(pieces):
        last_use.update((node, number) for node in _inputs(piece))
    return [_part(number, piece, last_use) for number, piece in enumerate(pieces)]


def _with_views(piece: Sequence[Node], places: dict[Node, int]) -> list[Node]:
    """The operations of a part, and views of earlier values, which cost nothing to repeat."""
    found = dict.fromkeys(piece)
    earlier: list[Node] = []
    waiting = _inputs(piece)
    while waiting:
        node = waiting.pop()
        if node not in found and node.target in _VIEWS:
            found[node] = None
            earlier.append(node)
            waiting.extend(node.all_input_nodes)
    return sorted(earlier, key=places.__getitem__) + list(piece)


def _inputs(piece: Sequence[Node]) -> list[Node]:
    own = set(piece)
    used = (node for one in piece for node in one.all_input_nodes)
    return list(dict.fromkeys(node for node in used if node not in own))


def _part(number: int, piece: Sequence[Node], last_use: dict[Node, int]) -> _Part:
    graph, copies, inputs = Graph(), dict[Node, Node](), _inputs(piece)
    for place, node in enumerate(inputs):
        copies[node] = graph.create_node("placeholder", f"input{place}", name=f"input{place}")
    for place, node in enumerate(piece):
        copies[node] = graph.create_node(
            "call_function",
            node.target,
            torch.fx.node.map_arg(node.args, copies.__getitem__),
            torch.fx.node.map_arg(node.kwargs, copies.__getitem__),
            name=f"value{place}",
        )
    outputs = tuple(node for node in piece if last_use.get(node, number) > number)
    graph.output(tuple(copies[node] for node in outputs))
    return _Part(
        module=GraphModule({}, graph),
        inputs=tuple(inputs),
        outputs=outputs,
        finished=tuple(
            n for n in inputs if last_use[n] == number and n.op not in ("placeholder", "get_attr")
        ),
    )


def _symbol(node: Node) -> object:
    """The operation with its constants and the shape of its result, without its arguments."""
    constants = torch.fx.node.map_arg((node.args, node.kwargs), lambda _: None)
    return str(node.target), repr(constants), _layout(node)


def _identity(part: _Part) -> object:
    """Equal for parts that compute the same function of arguments of the same layouts."""
    return str(part.module.graph), tuple(_layout(node) for node in part.inputs)


def _layout(node: Node) -> object:
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return None
    return value.shape, value.stride(), value.dtype, value.device


def _changes_arguments(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable
