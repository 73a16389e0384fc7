"""The networks: sizes, shapes, no example sees another, per-example gradients, starting weights."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.data import Examples
from dpaudit.data.text import byte_sequences
from dpaudit.engine import check_mechanism
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, FixedBatches
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models import (
    convnet,
    drawn_by,
    fcnn,
    gpt,
    linear_head,
    resnet18,
    vit_tiny,
    wide_resnet,
)

IMAGE = (3, 32, 32)
HEAD = functools.partial(linear_head, 2304, 10)


@pytest.mark.parametrize(
    ("build", "parameters", "shape", "classes"),
    [
        (fcnn, 68, (8,), 2),
        (convnet, 62_006, IMAGE, 10),
        (resnet18, 11_173_962, IMAGE, 10),
        (HEAD, 23_050, (2304,), 10),
        (vit_tiny, 5_362_762, IMAGE, 10),
        (wide_resnet, 2_751_146, IMAGE, 10),
        (gpt, 10_795_008, (128,), 256),
    ],
    ids=["fcnn", "convnet", "resnet18", "head", "vit", "wrn", "gpt"],
)
def test_sizes_and_shapes(
    build: Callable[[], nn.Module], parameters: int, shape: tuple[int, ...], classes: int
) -> None:
    """One seed gives one start, and the output of an example does not depend on the others."""
    torch.manual_seed(0)
    network = build()
    start = nn.utils.parameters_to_vector(network.parameters())
    assert len(start) == parameters
    assert list(network.buffers()) == []  # state outside the parameters would escape the noise
    inputs = torch.randn(2, *shape) if shape != (128,) else torch.randint(256, (2, *shape))
    with torch.no_grad():
        together = network(inputs)
        alone = torch.cat([network(example[None]) for example in inputs])
    assert together.shape[-1] == classes
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    torch.manual_seed(0)
    assert torch.equal(start, nn.utils.parameters_to_vector(build().parameters()))


def test_resnet18_halves_the_image_three_times() -> None:
    sizes: list[tuple[int, ...]] = []
    network = resnet18(width=8, groups=4)
    for module in network:  # type: ignore[attr-defined]
        module.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    network(torch.zeros(1, 3, 32, 32))
    blocks = sizes[3:-3]
    assert blocks == [(8, 32, 32)] * 2 + [(16, 16, 16)] * 2 + [(32, 8, 8)] * 2 + [(64, 4, 4)] * 2


def test_resnet18_has_eighteen_weighted_layers_and_only_group_norm() -> None:
    network = resnet18()
    weighted = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    shortcuts = [m for m in weighted if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    assert len(weighted) - len(shortcuts) == 18
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == len(weighted) - 1
    assert {m.num_groups for m in norms} == {32}


TEXT = byte_sequences(None, length=16, characters=2000)
IMAGES = Examples(
    features=np.random.default_rng(0).normal(size=(12, 3, 32, 32)),
    targets=np.arange(12) % 10,
    classes=10,
)


@pytest.mark.parametrize(
    ("build", "data", "slow"),
    [
        (functools.partial(gpt, length=16, width=12, layers=2, heads=2), TEXT, 0),
        (functools.partial(vit_tiny, width=12, layers=2), IMAGES, 1),
        (functools.partial(wide_resnet, depth=10, widen=1), IMAGES, 0),
    ],
    ids=["gpt", "vit", "wrn"],
)
def test_per_example_gradients_are_cheap(
    build: Callable[[], nn.Module], data: Examples, slow: int
) -> None:
    mechanism = DPSGD(
        build_model=build,
        loss=cross_entropy,
        data=data,
        batches=FixedBatches(batch_size=4),
        steps=2,
        learning_rate=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    checked = check_mechanism(mechanism)
    assert not checked.taps.loose
    assert len(checked.notices) == slow  # ViT uses its positions and its class token directly


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: resnet18(groups=48), r"groups must divide the width \(64\), got 48; .* as 32"),
        (lambda: resnet18(classes=1), "classes must be at least 2, got 1"),
        (lambda: linear_head(0, 10), "features must be at least 1, got 0"),
        (lambda: gpt(width=10, heads=3), "heads"),
        (lambda: vit_tiny(width=10, heads=3), "heads"),
        (lambda: wide_resnet(depth=15), "depth"),
        (lambda: wide_resnet(groups=5), "groups"),
        (lambda: drawn_by("lecun", convnet), "rule must be one of"),
    ],
)
def test_bad_arguments(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build()


@pytest.mark.parametrize(("rule", "variance"), [("xavier", 2 / (400 + 120)), ("kaiming", 2 / 400)])
def test_weights_have_the_variance_of_their_paper(rule: str, variance: float) -> None:
    torch.manual_seed(0)
    weights = drawn_by(rule, convnet)[7].weight.detach()  # type: ignore[index]
    # 400 to 120: 48,000 weights; four standard errors of the variance of a uniform sample.
    error = 4 * math.sqrt(0.8 / weights.numel())
    assert float(weights.var()) == pytest.approx(variance, rel=error)


@pytest.mark.parametrize("rule", ["xavier", "kaiming"])
def test_every_bias_starts_at_zero_and_normalisation_is_left_alone(rule: str) -> None:
    model = drawn_by(rule, lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)))
    convolution, norm = model.children()
    assert not convolution.bias.any()  # type: ignore[operator, union-attr]
    assert bool((norm.weight == 1).all())  # type: ignore[union-attr]


def test_weights_are_the_same_in_worker_processes() -> None:
    build = functools.partial(drawn_by, "kaiming", convnet)
    torch.manual_seed(1)
    here = build()
    torch.manual_seed(1)
    there = pickle.loads(pickle.dumps(build))()
    vectors = [nn.utils.parameters_to_vector(model.parameters()) for model in (here, there)]
    assert torch.equal(*vectors)
