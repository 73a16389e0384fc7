"""Compiled and uncompiled steps agree; without a compiler a notice is given."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import cross_entropy
from torch import Tensor, nn
from torch.nn import functional

from dpaudit.engine import Speed, compiling, noise, products
from dpaudit.engine.clipped_sums import ClippedSums, Taps
from dpaudit.engine.compiling import (
    WORTH_TRACING,
    Compiled,
    Results,
    numerics,
    pieces_outside,
    sum_distance,
    traced,
    update_distance,
)
from dpaudit.engine.convolutions import PADDED_TO
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.noise import Stream
from dpaudit.engine.starting_points import flat_parameters, initial_parameters, known_model
from dpaudit.engine.training import Engine
from dpaudit.mechanisms.losses import cross_entropy as mean_cross_entropy
from dpaudit.models import gpt
from dpaudit.testing import easy_training

PROGRAM = """
import torch
from dpaudit.engine.compiling import Compiled

step = Compiled(lambda x: (x * 2 + 1,), compiled=True)
print(step(torch.arange(4.0)).tolist())
print(*step.notices)
"""


def one(function: Callable[..., Tensor]) -> Callable[..., Results]:
    """The function with its result as the only one of several."""
    return lambda *args: (function(*args),)


def distances(fast: Results, plain: Results, args: tuple[Tensor, ...]) -> list[tuple[float, float]]:
    return [(update_distance(fast[0], plain[0], args[0]), 1e-3)]


def small_convolutions() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 3, 2),
        torch.nn.Flatten(),
        torch.nn.Linear(3, 2),
    )


def test_without_a_compiler_the_notice_says_so(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CXX": str(tmp_path / "no-such-compiler"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    result, notice = done.stdout.strip().splitlines()
    assert result == "[1.0, 3.0, 5.0, 7.0]"
    assert "C++ compiler" in notice
    assert "slower" in notice


def test_out_of_memory_does_not_disable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> object:
        raise torch.OutOfMemoryError("pretended")

    step = Compiled(one(lambda x: x + 1), compiled=True)
    monkeypatch.setattr(compiling, "compiled", failing)
    with pytest.raises(torch.OutOfMemoryError):
        step(torch.zeros(2))
    assert step.notices == ()


def test_a_notice_says_if_there_is_no_memory_for_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> Results:
        raise torch.OutOfMemoryError("pretended")

    step = Compiled(one(lambda x: x + 1), compiled=True, distances=distances)
    monkeypatch.setattr(compiling, "traced", lambda *_, **__: failing)
    monkeypatch.setattr(compiling, "compiled", lambda *_: one(lambda x: x + 1))
    for _ in range(3):
        assert step(torch.zeros(2)).tolist() == [1, 1]
    assert "tile_size" in step.notices[0]


@pytest.mark.parametrize("wrong_at", [0, 2])
def test_a_compiled_step_that_disagrees_is_not_used(
    monkeypatch: pytest.MonkeyPatch, wrong_at: int
) -> None:
    """At the first call or a little later: what comes out is right from the first call on."""
    calls = iter(range(100))

    def miscompiling(graph: Callable[..., Results], _: object) -> Callable[..., Results]:
        return one(lambda x: graph(x)[0] + (0.01 if next(calls) == wrong_at else 0))

    step = Compiled(one(lambda x: x - 0.1), compiled=True, distances=distances)
    monkeypatch.setattr(compiling, "compiled", miscompiling)
    current = torch.ones(4)
    for _ in range(6):
        current = step(current)
    torch.testing.assert_close(current, torch.full((4,), 0.4))
    assert next(calls) == wrong_at + 1
    assert "incorrectly" in step.notices[0]


@pytest.mark.parametrize("virtual", [None, 5], ids=["whole batch", "virtual batches"])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0], ids=["right", "too small", "without examples"])
def test_wrong_gradients_are_seen_though_the_noise_is_a_thousand_times_longer(
    monkeypatch: pytest.MonkeyPatch, share: float, virtual: int | None
) -> None:
    def miscompiling(graph: Callable[..., Results], _: object) -> Callable[..., Results]:
        def call(*args: Tensor) -> Results:
            if args[1].dtype != torch.int64:  # the update after virtual batches is right
                return graph(*args)
            return graph(*args[:2], args[2] * (1 - share), *args[3:])

        return call

    mechanism = easy_training(noise_multiplier=1e4)
    monkeypatch.setattr(compiling, "compiled", miscompiling)
    speed = Speed(device="cpu", virtual_batch=virtual)
    engine = Engine(mechanism, runs=2, speed=speed, compiled=True)
    runs = torch.arange(2)
    next(engine.states(initial_parameters(mechanism, seed=0, runs=runs), runs, torch.zeros(2, 0)))
    assert bool(engine.notices) == bool(share)


@pytest.mark.parametrize("virtual", [None, 5], ids=["whole batch", "virtual batches"])
@pytest.mark.parametrize("tensor", [None, 0, 1, 2, 3])
def test_missing_gradients_of_one_tensor_are_seen_in_any_precision(
    monkeypatch: pytest.MonkeyPatch, tensor: int | None, virtual: int | None
) -> None:
    mechanism = dataclasses.replace(
        easy_training(noise_multiplier=1e4),
        build_model=lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    )
    sizes = [parameter.numel() for parameter in known_model(mechanism).parameters()]

    def miscompiling(graph: Callable[..., Results], _: object) -> Callable[..., Results]:
        def call(*args: Tensor) -> Results:
            results = graph(*args)
            if tensor is not None and args[1].dtype == torch.int64:
                without = graph(*args[:2], 0 * args[2], *args[3:])
                for result, wrong in zip(results, without, strict=True):
                    parts = torch.split(wrong, sizes, -1)
                    torch.split(result, sizes, -1)[tensor].copy_(parts[tensor])
            return results

        return call

    monkeypatch.setattr(compiling, "compiled", miscompiling)
    speed = Speed(device="cpu", precision="bfloat16", virtual_batch=virtual)
    engine = Engine(mechanism, runs=2, speed=speed, compiled=True)
    runs = torch.arange(2)
    next(engine.states(initial_parameters(mechanism, seed=0, runs=runs), runs, torch.zeros(2, 0)))
    assert ["incorrectly" in notice for notice in engine.notices] == [True] * (tensor is not None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_only_the_failure_of_the_compiled_step_counts_if_a_tensor_diverged(value: float) -> None:
    finite = torch.ones(2, 6)
    diverged = finite.clone()
    diverged[0, 4] = value  # in the second of two tensors

    def apart(result: Tensor, plain: Tensor) -> float:
        return sum_distance(result, plain, (3, 3), 0.0)

    assert apart(diverged, diverged) == 0
    assert apart(finite, diverged) == 0
    assert apart(diverged, finite) == float("inf")
    assert apart(finite, finite) == 0


@pytest.mark.parametrize("length", [0.1, 1e-6, 0.0])
def test_a_compiled_step_that_rounds_differently_is_used(
    monkeypatch: pytest.MonkeyPatch, length: float
) -> None:
    """However short the step is beside where it starts."""
    calls = iter(range(100))

    def rounding(graph: Callable[..., Results], _: object) -> Callable[..., Results]:
        return one(lambda x: graph(x)[0] * (1 + 2e-7 * (next(calls) > 0)))

    step = Compiled(one(lambda x: x - length), compiled=True, distances=distances)
    monkeypatch.setattr(compiling, "compiled", rounding)
    current = torch.ones(4)
    for _ in range(6):
        current = step(current)
    assert next(calls) == 6
    assert step.notices == ()


@pytest.mark.slow
def test_compiled_words_equal_eager_words_bit_by_bit() -> None:
    """A C++ compiler takes it that signed integers never overflow; the cipher's must not."""

    def draw(key: Tensor, runs: Tensor, step: Tensor) -> Tensor:
        return torch.stack(noise.words(key, Stream.NOISE, runs, step, 101))

    key, runs = noise.key(2**63 + 7), torch.arange(33)
    for function in (Compiled(one(draw), compiled=True), _compiled(draw)):
        for step in (0, 1, 3, 4, 5, 8, 1000, 2**32 - 1):
            found = function(key, runs, torch.tensor(step))
            assert torch.equal(found, draw(key, runs, torch.tensor(step)))


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Without tracing first: the same arithmetic, laid out in another way."""
    return torch.compile(function, dynamic=False, fullgraph=True)


@pytest.mark.slow
def test_compiled_noise_equals_eager_noise_but_for_the_last_bit() -> None:
    def draw(key: Tensor, runs: Tensor, step: Tensor) -> Tensor:
        return noise.normals(key, Stream.NOISE, runs, step, 101)

    compiled = Compiled(one(draw), compiled=True)
    with numerics("float32", torch.device("cpu")):
        for step in range(12):
            found = compiled(noise.key(7), torch.arange(33), torch.tensor(step))
            wanted = draw(noise.key(7), torch.arange(33), torch.tensor(step))
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    assert compiled.notices == ()


def _switches() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    precision = torch.get_float32_matmul_precision()
    return torch.get_num_threads(), precision, cudnn.allow_tf32, cudnn.deterministic


def test_numerics_are_put_back() -> None:
    before = _switches()
    with numerics("tf32", torch.device("cpu")):
        assert _switches() == (1, "high", True, True)
    with numerics("float32", torch.device("cpu")):
        assert _switches() == (1, "highest", False, True)
    assert _switches() == before


@pytest.mark.slow
@pytest.mark.parametrize("alignment", [1, 8])
def test_compiled_clipped_sums_equal_uncompiled_ones(
    monkeypatch: pytest.MonkeyPatch, alignment: int
) -> None:
    """With convolutions as products, and with the padding that a GPU gets."""
    monkeypatch.setitem(PADDED_TO, "cpu", alignment)
    torch.manual_seed(0)
    template = small_convolutions()
    features, targets = torch.randn(5, 3, 7, 7), torch.arange(5) % 2
    sums = ClippedSums(template, cross_entropy, features, rule_for=partial(rule_for, products=True))
    flat = torch.stack([flat_parameters(small_convolutions()) for _ in range(3)])
    example = (flat, features, targets, torch.ones(3, 5), torch.tensor(0.5))
    with numerics("float32", torch.device("cpu")):
        plain = Compiled(one(sums), compiled=False)(*example)
        compiled = Compiled(one(sums), compiled=True)
        found = compiled(*example)
    assert compiled.notices == ()
    assert float((found - plain).norm() / plain.norm()) < 1e-5


@pytest.mark.parametrize("count", [1, 3])
def test_the_graph_of_a_step_gives_the_bits_of_the_step(case: Any, count: int) -> None:
    """Short trainings are not traced, so both must end at the same parameters."""
    mechanism = case.training()
    speed, runs = Speed(device="cpu", compile=False), torch.arange(count)
    start = initial_parameters(mechanism, seed=0, runs=runs)
    untraced, traced = (
        Engine(mechanism, runs=count, speed=speed, compiled=False, times=times)
        for times in (1, WORTH_TRACING)
    )
    with numerics("float32", torch.device("cpu")):
        steps = [list(one.states(start, runs, torch.zeros(count, 0))) for one in (untraced, traced)]
    assert all(torch.equal(one, other) for one, other in zip(*steps, strict=True))


def test_a_view_whose_shape_changes_in_place_stays_in_the_graph() -> None:
    def all_sums(values: Tensor) -> Tensor:
        return values + values.view(values.shape).unsqueeze_(1)

    values = torch.arange(3.0)
    graph = Compiled(one(all_sums), compiled=False)
    assert torch.equal(graph(values), values + values[:, None])
    assert values.shape == (3,)


def test_a_view_of_a_view_is_one_node_unless_the_first_changes_in_place() -> None:
    def reshaped(values: Tensor) -> Tensor:
        first = values.view(2, 3).view(3, 2).view(6)
        return first + values.view(1, 6).view(2, 3).t().reshape(6)

    values = torch.arange(6.0)
    graph = traced(reshaped, (values,))
    assert torch.equal(graph(values), reshaped(values))
    views = [node for node in graph.graph.nodes if node.target is torch.ops.aten.view.default]
    assert all(node.args[0].op == "placeholder" for node in views)


@pytest.mark.parametrize("stacked", [False, True])
def test_the_pieces_of_an_argument_become_arguments(stacked: bool) -> None:
    """Otherwise the place of a parameter is a constant of the kernels that read it."""

    def step(state: Tensor, rate: Tensor) -> Tensor:
        current = state[0] if stacked else state
        first, second = torch.split(current, [2, 4], dim=1)
        return current - rate * torch.cat([second.sin(), first], dim=1)

    state, rate = torch.randn(*(2,) * stacked, 3, 6), torch.tensor(0.1)
    graph = traced(step, (state, rate))
    pieces = pieces_outside(graph)
    found = pieces(state, rate)
    assert [tuple(piece.shape) for piece in found] == [(3, 2), (3, 4)]
    assert all(piece.untyped_storage().data_ptr() == state.data_ptr() for piece in found)
    assert torch.equal(graph(state, rate, *found), step(state, rate))
    split = torch.ops.aten.split_with_sizes.default
    assert all(node.target is not split for node in graph.graph.nodes)


def gpt_sums(
    monkeypatch: pytest.MonkeyPatch, layers: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[ClippedSums, tuple[Tensor, ...]]:
    """The clipped sums of a tiny transformer as on a GPU, and arguments."""
    monkeypatch.setattr(products, "on_gpu", lambda _: True)
    template = gpt(vocabulary=9, length=4, width=16, layers=layers, heads=2).to(dtype)
    features = torch.arange(12).view(3, 4) % 9
    taps = Taps(per_example=True)
    sums = ClippedSums(template, mean_cross_entropy, features, taps, dtype=dtype)
    flat = flat_parameters(template)[None].float()
    example = (flat, features, features, torch.ones(1, 3), torch.tensor(0.5))
    return sums, example


MOST_NODES = 325
MOST_SUMS = 22


def test_a_transformer_block_does_not_need_more_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node costs time in each pass of the compiler, and every unfused sum a kernel."""

    def nodes(layers: int) -> list[torch.fx.Node]:
        return list(traced(*gpt_sums(monkeypatch, layers)).graph.nodes)

    one, two = nodes(1), nodes(2)
    assert len(two) - len(one) <= MOST_NODES
    total = torch.ops.aten.sum.dim_IntList
    counts = [sum(node.target is total for node in some) for some in (one, two)]
    assert counts[1] - counts[0] <= MOST_SUMS


def test_a_graph_for_a_gpu_is_compiled_without_another_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums, example = gpt_sums(monkeypatch)
    expected = sums(*example)
    monkeypatch.setattr(torch._inductor, "compile", lambda *_: pytest.fail("traced again"))
    monkeypatch.setattr(compiling, "LARGE", 0)
    monkeypatch.setattr(compiling, "FEW_TRIALS", {"deterministic": True, "no_such_option": 1})
    step = Compiled(one(sums), compiled=True, distances=distances)
    torch.testing.assert_close(step(*example), expected, rtol=1e-4, atol=1e-6)
    assert step.notices == ()
    assert not torch._inductor.config.deterministic


def test_gradients_of_a_max_pooling_are_compiled_without_padded_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch 2.11 reads them from the wrong places of a padded buffer."""
    padded, whole = [], torch._inductor.compile

    def compile(*args: Any) -> Any:
        padded.append(torch._inductor.config.comprehensive_padding)
        return whole(*args)

    def loss(images: Tensor) -> Tensor:
        return functional.max_pool2d(images, 2).square().sum()

    monkeypatch.setattr(torch._inductor, "compile", compile)
    images = torch.arange(32.0).view(2, 1, 4, 4).sin()
    for function in (torch.func.grad(loss), torch.exp):
        step = Compiled(one(function), compiled=True, distances=distances)
        torch.testing.assert_close(step(images), function(images))
    assert padded == [False, torch._inductor.config.comprehensive_padding]


def test_a_changed_compiler_traces_the_graph_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: object) -> object:
        raise TypeError("another argument is missing")

    monkeypatch.setattr(products, "on_gpu", lambda _: True)
    monkeypatch.setattr(compiling, "LARGE", 0)
    monkeypatch.setattr(compiling, "_last_stage", changed)
    step = Compiled(one(lambda x: x.softmax(0) + 1), compiled=True, distances=distances)
    values = torch.arange(4.0)
    torch.testing.assert_close(step(values), values.softmax(0) + 1)
    assert step.notices == ()


def test_a_graph_that_changes_values_in_place_is_traced_by_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "on_gpu", lambda _: True)
    monkeypatch.setattr(compiling, "LARGE", 0)
    step = Compiled(one(lambda x: (x * 2).add_(1)), compiled=True, distances=distances)
    torch.testing.assert_close(step(torch.ones(3)), torch.full((3,), 3.0))
    assert step.notices == ()


def test_parameters_are_split_before_they_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of a converted copy could not be arguments of the compiled graph."""
    sums, (flat, *rest) = gpt_sums(monkeypatch, dtype=torch.bfloat16)
    graph = traced(sums, (flat, *rest))
    pieces = pieces_outside(graph)(flat, *rest)
    assert sum(piece.numel() for piece in pieces) == flat.numel()
    assert all(piece.dtype == torch.float32 for piece in pieces)
    found = sums(flat, *rest)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, sums(flat.to(torch.bfloat16), *rest))


@pytest.mark.parametrize("large", [False, True], ids=["whole compiler", "last stage"])
def test_compiled_graphs_are_cached_on_disk(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "on_gpu", lambda _: large)
    monkeypatch.setattr(compiling, "LARGE", 0)
    counts = torch._dynamo.utils.counters["inductor"]
    counts.clear()
    for _ in range(2):
        Compiled(one(lambda x: x.cos() * 3 - 1), compiled=True)(torch.arange(5.0))
    assert counts["fxgraph_cache_hit"] + counts["fxgraph_cache_miss"] == 2
    assert counts["fxgraph_cache_hit"] >= 1
    assert not counts["fxgraph_cache_bypass"]
