"""Augmentation multiplicity and virtual batches equal the slow twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import slow_training
import torch
from torch import nn

from dpaudit.adversaries import AdaptivePoisoning, DiracGradient, FlippedLabel
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.engine.evaluate import GenuineSums
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, TilePlayer, prepare
from dpaudit.mechanisms import DPSGD, FixedBatches, FlipAndShift, Insertion, PoissonBatches
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.threat_models import CanaryPoints, CraftedDimensions

RANDOM = np.random.default_rng(0)
IMAGES = Examples(
    features=RANDOM.normal(size=(30, 2, 6, 7)), targets=RANDOM.integers(0, 3, 30), classes=3
)


class Scaled(nn.Module):
    """A convolution with a rule, and a parameter that is used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 3).view(3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (self.scale * torch.tanh(self.conv(images))).mean((2, 3))


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, 3))


def training(build: Any = small, batches: Any = None, **more: Any) -> DPSGD:
    return DPSGD(
        build_model=build,
        loss=cross_entropy,
        data=IMAGES,
        batches=FixedBatches(batch_size=10) if batches is None else batches,
        steps=3,
        learning_rate=0.5,
        clip_norm=0.4,
        noise_multiplier=1.0,
        **more,
    )


def points() -> CanaryPoints:
    return CanaryPoints(
        features=torch.from_numpy(IMAGES.features[:2]), targets=torch.tensor([2, 1])
    )


def dimensions() -> CraftedDimensions:
    return CraftedDimensions(dimensions=torch.tensor([4, 9]), norm=0.4)


VIEWS = FlipAndShift(views=3, padding=2)
TRAININGS = {
    "views": training(augmentation=VIEWS),
    "views, loose parameter": training(Scaled, augmentation=VIEWS),
    "views, Poisson": training(batches=PoissonBatches(rate=0.3), augmentation=VIEWS),
    "no views": training(),
    "no views, Poisson": training(batches=PoissonBatches(rate=0.3)),
}


@pytest.mark.parametrize("canaries", [points, dimensions])
@pytest.mark.parametrize("virtual", [None, 4])
@pytest.mark.parametrize("name", TRAININGS)
def test_iterates_equal_the_slow_twins(name: str, virtual: int | None, canaries: Any) -> None:
    described = Game(
        mechanism=TRAININGS[name], adversary=DiracGradient(), canaries=canaries(), runs=3
    )
    speed = Speed(device="cpu", precision="float64", compile=False, virtual_batch=virtual)
    trained = TilePlayer(prepare(described, speed)).train(torch.arange(3))
    iterates = torch.stack([current.clone() for _, current in trained])
    for run in range(3):
        expected = slow_training.play(described, run)
        torch.testing.assert_close(iterates[:, run], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", TRAININGS)
def test_points_of_adaptive_adversaries_have_views_too(name: str) -> None:
    adversary, mechanism = AdaptivePoisoning(steps=2), TRAININGS[name]
    crafted = adversary.craft(mechanism, Insertion(), canaries=2, seed=0)
    described = Game(mechanism=mechanism, adversary=adversary, canaries=crafted, runs=3)
    speed = Speed(device="cpu", precision="float64", compile=False)
    trained = TilePlayer(prepare(described, speed)).train(torch.arange(3))
    iterates = torch.stack([current.clone() for _, current in trained])
    for run in range(3):
        expected = slow_training.play(described, run)
        torch.testing.assert_close(iterates[:, run], expected, rtol=1e-6, atol=1e-8)


def test_genuine_sums_see_the_views() -> None:
    """Without noise and canary, the genuine sum is the whole movement."""
    mechanism = replace(TRAININGS["views"], noise_multiplier=0.0)
    described = Game(
        mechanism=mechanism, adversary=FlippedLabel(), canaries=dimensions(), runs=8, seed=1
    )
    coins = TilePlayer(prepare(described, Speed(device="cpu", compile=False)))._coins
    run = int((~coins.any(1)).nonzero()[0])
    iterates = slow_training.play(described, run).unsqueeze(1)
    found = GenuineSums(mechanism, iterates)(1)[0]
    moved = (iterates[1, 0] - iterates[2, 0]) * 10 / 0.5
    torch.testing.assert_close(found, moved, rtol=1e-8, atol=1e-10)


def test_views_are_images_of_the_same_shape() -> None:
    images = torch.arange(2 * 4 * 4, dtype=torch.float32).view(1, 2, 4, 4)
    uniforms = torch.tensor([[[0.5, 0.5, 0.9], [0.5, 0.5, 0.1], [0.0, 0.99, 0.9]]])
    found = FlipAndShift(views=3, padding=1).apply(images, uniforms)
    assert found.shape == (1, 3, 2, 4, 4)
    torch.testing.assert_close(found[0, 0], images[0])
    torch.testing.assert_close(found[0, 1], images[0].flip(2))
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    torch.testing.assert_close(found[0, 2], padded[0, :, :4, 2:])


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="views"):
        FlipAndShift(views=0)
    with pytest.raises(InvalidInput, match="virtual_batch"):
        Speed(virtual_batch=0)
