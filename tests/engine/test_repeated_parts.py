"""A graph in repeated parts computes the same, and equal parts are compiled once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from dpaudit.engine import noise
from dpaudit.engine.compilation import Traced
from dpaudit.engine.noise import Stream
from dpaudit.engine.repeated_parts import repeated_parts

BLOCKS, WIDTH = 12, 4


def one_step(weights: Tensor, inputs: Tensor) -> Tensor:
    """A gradient step of a network with equal blocks, and the noise of a step."""

    def loss(weights: Tensor) -> Tensor:
        hidden = inputs
        for weight in weights:
            query, key = torch.split(hidden @ weight, WIDTH // 2, dim=1)
            mixed = torch.softmax(query @ key.T, dim=1) @ hidden
            hidden = torch.nn.functional.layer_norm(hidden + torch.tanh(mixed), (WIDTH,))
            wide = torch.cat([hidden, hidden @ weight], dim=1)
            hidden = torch.sigmoid(wide[:, :WIDTH] * wide[:, WIDTH:].exp()) + hidden
        return (hidden**2).sum()

    gradient = torch.func.grad(loss)(weights)
    runs, step = torch.arange(1), torch.tensor(3)
    numbers = noise.normals(noise.key(0), Stream.NOISE, runs, step, weights.numel())
    return weights - 0.1 * (gradient + numbers.view_as(weights))


@pytest.fixture(scope="module")
def example() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    weights = torch.randn(BLOCKS, WIDTH, WIDTH, generator=random)
    return weights, torch.randn(3, WIDTH, generator=random)


@pytest.fixture(scope="module")
def graph(example: tuple[Tensor, Tensor]) -> GraphModule:
    return traced(one_step, example)


def traced(function: Callable[..., Tensor], example: tuple[Any, ...]) -> GraphModule:
    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)


def test_equal_parts_are_compiled_once(graph: GraphModule, example: tuple[Tensor, Tensor]) -> None:
    compiled: list[GraphModule] = []

    def compiler(module: GraphModule) -> GraphModule:
        compiled.append(module)
        return module

    parts = repeated_parts(graph, compiler, least_saved=300)
    assert parts is not None
    operations = sum(node.op == "call_function" for node in graph.graph.nodes)
    own = [sum(node.op == "call_function" for node in one.graph.nodes) for one in compiled]
    assert parts.functions == len(compiled)
    assert sum(own) < operations / 2
    assert torch.equal(parts(*example), graph(*example))
    assert torch.equal(parts(*example), one_step(*example))


def test_the_noise_stays_in_one_part() -> None:
    # Its rounds repeat too, but apart they would write every word of every round to memory.
    def numbers(runs: Tensor, step: Tensor) -> Tensor:
        return noise.normals(noise.key(0), Stream.NOISE, runs, step, 16)

    graph = traced(numbers, (torch.arange(2), torch.tensor(0)))
    assert repeated_parts(graph, lambda module: module, least_saved=1) is None


def test_operations_that_change_their_arguments_are_not_cut(graph: GraphModule) -> None:
    changing = copy.deepcopy(graph)
    last = changing.graph.output_node().all_input_nodes[0]
    with changing.graph.inserting_after(last):
        changed = changing.graph.call_function(torch.ops.aten.add_.Scalar, (last, 1))
    changing.graph.output_node().args = (changed,)
    changing.recompile()
    assert repeated_parts(graph, lambda module: module, least_saved=1) is not None
    assert repeated_parts(changing, lambda module: module, least_saved=1) is None


def test_a_step_with_repeated_parts_is_compiled_in_parts(
    example: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[GraphModule] = []

    def compiler(module: GraphModule, **_: object) -> GraphModule:
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compiler)
    step = Traced(one_step, example, compiled=True)
    assert torch.equal(step(*example), one_step(*example))
    few = len(compiled)
    monkeypatch.setattr("dpaudit.engine.repeated_parts.LEAST_SAVED", 300)
    step = Traced(one_step, example, compiled=True)
    assert torch.equal(step(*example), one_step(*example))
    assert few == 1
    assert len(compiled) > 2
