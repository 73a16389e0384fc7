"""Blocks of convolution, ReLU and max-pooling: operations, kernels, and how models use them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import slow_blocks
import torch
from tests.engine.emulated_cuda import emulated, launch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.engine.compiling import _without_idle_nodes
from dpaudit.engine.kernels import launching, operations
from dpaudit.engine.kernels.layout import Layer, Shape, fits, input_plan, output_plan, weight_plan
from dpaudit.engine.kernels.rule import ConvolutionBlock, with_blocks
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.batches import FullBatch
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.losses import cross_entropy

SHAPES = [
    (Shape(kernel=(5, 5), relu=True, pool=2), (13, 15)),
    (Shape(kernel=(3, 3), padding=(1, 1), relu=True), (8, 7)),
    (Shape(kernel=(3, 3), padding=(1, 1), stride=(2, 2)), (8, 7)),
    (Shape(kernel=(3, 2), padding=(2, 1), stride=(1, 2), dilation=(2, 1), pool=2), (17, 20)),
    (Shape(kernel=(2, 2), padding=(0, 1), stride=(3, 2), relu=True, pool=2), (17, 20)),
]
RUNS, EXAMPLES, CHANNELS, OUTPUTS = 2, 3, 2, 5


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def arguments(shape: Shape, size: tuple[int, int], shared: bool) -> tuple[Tensor, Tensor, Tensor]:
    weight = numbers(RUNS, OUTPUTS, CHANNELS, *shape.kernel)
    inputs = numbers(1 if shared else RUNS, EXAMPLES, CHANNELS, *size, seed=1)
    return weight, numbers(RUNS, OUTPUTS, seed=2), inputs


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_operations_agree_with_autograd(shape: Shape, size: tuple[int, int], shared: bool) -> None:
    weight, bias, inputs = arguments(shape, size, shared)
    outputs, which = slow_blocks.forward(weight, bias, inputs, shape)
    gradient = numbers(*outputs.shape, seed=3)
    of_inputs = slow_blocks.input_gradient(weight, gradient, which, size, shape)
    of_weight, of_bias = slow_blocks.weight_gradient(inputs, gradient, which, shape)
    for run in range(RUNS):
        for example in range(EXAMPLES):
            image = inputs[0 if shared else run, example, None].clone().requires_grad_()
            own, own_bias = weight[run].clone().requires_grad_(), bias[run].clone().requires_grad_()
            found = functional.conv2d(
                image, own, own_bias, shape.stride, shape.padding, shape.dilation
            )
            found = found.relu() if shape.relu else found
            found = functional.max_pool2d(found, shape.pool) if shape.pool > 1 else found
            expected = torch.autograd.grad(
                found, (image, own, own_bias), gradient[run, example, None]
            )
            assert torch.allclose(outputs[run, example], found[0])
            assert torch.allclose(of_inputs[run, example], expected[0][0])
            assert torch.allclose(of_weight[run, example], expected[1])
            assert torch.allclose(of_bias[run, example], expected[2])


def test_operations_are_registered_correctly() -> None:
    shape, size = SHAPES[0]
    weight, bias, inputs = arguments(shape, size, shared=False)
    outputs, which = slow_blocks.forward(weight, bias, inputs, shape)
    tests = ("test_schema", "test_faketensor")
    for operation, given in (
        (operations._forward, (weight, bias, inputs)),
        (operations._input_gradient, (weight, outputs, which, list(size))),
        (operations._weight_gradient, (inputs, outputs, which)),
    ):
        torch.library.opcheck(operation, (*given, shape.numbers()), test_utils=tests)


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where kernels run: on a GPU, or emulated on a CPU."""
    if request.param == "cuda" and not launching.usable():
        pytest.skip("needs a GPU")
    if request.param == "cpu" and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cpu":
            sources = [
                plan(layer).definitions(layer) + launching._SOURCE
                for shape, size in SHAPES
                for shared in (True, False)
                for halved in (True, False)
                for plan in (output_plan, weight_plan, input_plan)
                for layer in [a_layer(shape, size, shared and plan is not input_plan, halved)]
            ]
            folder = tmp_path_factory.mktemp("kernels")
            compiled = emulated(list(dict.fromkeys(sources)), folder)
            patch.setattr(torch.cuda, "_compile_kernel", compiled, raising=False)
            patch.setattr(launching, "_launch", launch)
        yield request.param
    launching._compiling.cache_clear()


def a_layer(shape: Shape, size: tuple[int, int], shared: bool, halved: bool = False) -> Layer:
    return Layer(
        shape=shape, channels=CHANNELS, size=size, outputs=OUTPUTS, shared=shared, halved=halved
    )


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_kernels_agree_with_the_operations(
    shape: Shape, size: tuple[int, int], shared: bool, stored: torch.dtype, device: str
) -> None:
    exact = [values.to(stored).double() for values in arguments(shape, size, shared)]
    weight, bias, inputs = (values.to(device, stored) for values in exact)
    outputs, which = slow_blocks.forward(*exact, shape)
    gradient = numbers(*outputs.shape, seed=3).to(stored).double()
    given = gradient.to(device, stored), which.to(device)
    found, chosen = launching.forward(weight, bias, inputs, shape)
    assert not shape.selects or (chosen.cpu() == which).double().mean() > 0.99
    pairs = [
        (found, outputs),
        (
            launching.input_gradient(weight, *given, size, shape),
            slow_blocks.input_gradient(exact[0], gradient, which, size, shape),
        ),
        *zip(
            launching.weight_gradient(inputs, *given, shape),
            slow_blocks.weight_gradient(exact[2], gradient, which, shape),
            strict=True,
        ),
    ]
    rounding = 3e-3 if stored == torch.bfloat16 else 1e-6 if device == "cpu" else 1e-3
    for one, other in pairs:
        difference = (one.double().cpu() - other).norm() / other.norm()
        assert difference < rounding


def test_all_kernels_of_a_training_are_compiled_ahead(device: str) -> None:
    shape, size = SHAPES[0]
    launching._compiling.cache_clear()
    here = torch.zeros(1, device=device).device
    launching.compile_ahead([a_layer(shape, size, False), a_layer(shape, size, False)], here)
    ahead = launching._compiling.cache_info().misses
    for shared in (True, False):
        weight, bias, inputs = (v.to(here) for v in arguments(shape, size, shared))
        outputs, which = launching.forward(weight, bias, inputs, shape)
        launching.weight_gradient(inputs, outputs, which, shape)
    launching.input_gradient(weight, outputs, which, size, shape)
    assert launching._compiling.cache_info().misses == ahead == 5


def test_kernels_propagate_not_a_number(device: str) -> None:
    shape, size = SHAPES[0]
    weight, bias, inputs = (values.float() for values in arguments(shape, size, False))
    inputs[0, 1, 0, 6, 6] = torch.nan
    expected, _ = slow_blocks.forward(weight, bias, inputs, shape)
    given = (values.to(device) for values in (weight, bias, inputs))
    found, _ = launching.forward(*given, shape)
    assert torch.equal(found.isnan().cpu(), expected.isnan())


def test_large_layers_and_windows_do_not_fit() -> None:
    small = a_layer(SHAPES[0][0], (32, 32), shared=True)
    assert fits(small)
    assert not fits(dataclasses.replace(small, channels=64))
    assert not fits(dataclasses.replace(small, shape=Shape(kernel=(5, 5), pool=3)))


def test_layers_that_follow_each_other_are_joined() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU())
    )
    joined = with_blocks(model, numbers(2, 1, 9, 9, dtype=torch.float32))
    found = [layer for layer in joined.modules() if isinstance(layer, ConvolutionBlock)]
    assert [(layer.shape.relu, layer.shape.pool) for layer in found] == [(True, 2), (True, 1)]
    names = [name for name, _ in joined.named_parameters()]
    assert names == [name for name, _ in model.named_parameters()]
    assert not any(isinstance(layer, ConvolutionBlock) for layer in model.modules())


@pytest.mark.parametrize(
    "pooling",
    [
        nn.MaxPool2d(3),
        nn.MaxPool2d(3, 2),
        nn.MaxPool2d((2, 1)),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2),
    ],
)
def test_other_poolings_are_not_joined(pooling: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), pooling)
    joined = with_blocks(model, numbers(2, 1, 9, 9, dtype=torch.float32))
    assert joined[0].shape.pool == 1
    assert type(joined[2]) is type(pooling)


class _Skipping(nn.Module):
    """Uses the first layer of its Sequential alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())

    def forward(self, inputs: Tensor) -> Tensor:
        first: Tensor = self.layers[0](inputs)
        return first + self.layers[1](first)


def test_a_model_that_joining_would_change_is_left_alone() -> None:
    model = _Skipping()
    assert with_blocks(model, numbers(2, 1, 5, 5, dtype=torch.float32)) is model


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 2),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def test_the_engine_trains_as_without_blocks() -> None:
    data = Examples(
        features=numbers(6, 1, 8, 8).float().numpy(), targets=np.arange(6) % 3, classes=3
    )
    mechanism = DPSGD(
        build_model=small_network,
        loss=cross_entropy,
        data=data,
        batches=FullBatch(),
        steps=3,
        learning_rate=0.1,
        clip_norm=0.5,
        noise_multiplier=1.0,
    )
    runs = torch.arange(2)
    ends = []
    for convolutions in ("product", "kernels"):
        speed = Speed(device="cpu", precision="tf32", convolutions=convolutions)  # type: ignore[arg-type]
        engine = Engine(mechanism, runs=2, speed=speed, compiled=False)
        start = initial_parameters(mechanism, seed=0, runs=runs)
        *_, end = engine.states(start, runs, torch.zeros(2, 0))
        ends.append(end)
    assert torch.allclose(*ends, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_kernels_that_round_are_refused_where_precision_was_asked_for(precision: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{precision}'"):
        Speed(precision=precision, convolutions="kernels")  # type: ignore[arg-type]


def test_taps_are_removed_except_on_a_cpu() -> None:
    def tapped(values: Tensor) -> Tensor:
        return values.sin() + torch.zeros((), device=values.device).expand(3)

    for device, additions in (("cpu", 1), ("meta", 0)):
        graph = _without_idle_nodes(make_fx(tapped)(torch.ones(3, device=device)))
        found = [node.target for node in graph.graph.nodes]
        assert found.count(torch.ops.aten.add.Tensor) == additions
