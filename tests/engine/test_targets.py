"""Targets of any kind: token sequences, regression, several outputs, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import slow_training
import torch
from torch import Tensor, nn

from dpaudit import audit
from dpaudit.adversaries import ADVERSARIES, FlippedLabel
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, TilePlayer, check_game, prepare
from dpaudit.mechanisms import DPSGD, FixedBatches, Insertion
from dpaudit.mechanisms.losses import cross_entropy, squared_error
from dpaudit.threat_models import CanaryPoints

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 9, (24, 7))
NUMBERS = RANDOM.normal(size=(24, 5)).astype(np.float32)


class NextToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens)).cumsum(1))


class Reconstruction(nn.Module):
    """Returns the difference between the input and its reconstruction."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(5, 2), nn.Linear(2, 5)

    def forward(self, features: Tensor) -> Tensor:
        return features - self.up(torch.tanh(self.down(features)))


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    assert targets.shape == (len(outputs), 0)
    return outputs.square().sum(1)


def one_output() -> nn.Module:
    return nn.Linear(5, 1)


def two_outputs() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


KINDS: dict[str, tuple[Any, Any, Examples]] = {
    "token sequences": (
        NextToken,
        cross_entropy,
        Examples(features=TOKENS[:, :-1].copy(), targets=TOKENS[:, 1:], classes=9),
    ),
    "regression": (
        one_output,
        squared_error,
        Examples(features=NUMBERS, targets=NUMBERS[:, 0] ** 2),
    ),
    "several outputs": (
        two_outputs,
        squared_error,
        Examples(features=NUMBERS, targets=NUMBERS[:, :2] - 1),
    ),
    "none": (Reconstruction, squares, Examples(features=NUMBERS)),
}


def training(kind: str, noise_multiplier: float = 1.0) -> DPSGD:
    build, loss, data = KINDS[kind]
    return DPSGD(
        build_model=build,
        loss=loss,
        data=data,
        batches=FixedBatches(batch_size=8),
        steps=4,
        learning_rate=0.3,
        clip_norm=0.8,
        noise_multiplier=noise_multiplier,
    )


def game(kind: str) -> Game:
    mechanism = training(kind)
    canaries = CanaryPoints(
        features=torch.from_numpy(mechanism.data.features[:2]),
        targets=torch.from_numpy(mechanism.data.targets[2:4]),
    )
    return Game(
        mechanism=mechanism,
        adversary=FlippedLabel(),
        canaries=canaries,
        runs=3,
        coin="fair",
        horizons=tuple(range(1, mechanism.steps + 1)),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_training_equals_the_slow_twin(kind: str) -> None:
    described = game(kind)
    prepared = prepare(described, Speed(device="cpu", precision="float64", compile=False))
    assert not prepared.checked.notices
    trained = TilePlayer(prepared).train(torch.arange(3))
    iterates = torch.stack([current.clone() for _, current in trained])
    for run in range(3):
        torch.testing.assert_close(
            iterates[:, run], slow_training.play(described, run), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["random-dimension", "dirac-gradient", "api-access"])
def test_audits_run_with_any_target(kind: str, name: str) -> None:
    scores = audit(training(kind), ADVERSARIES[name], runs=4, anyway=True).scores.score
    assert np.isfinite(scores).all()


def test_wrong_targets_are_wrong() -> None:
    for kind in ("token sequences", "regression", "several outputs"):
        mechanism = training(kind)
        crafted = FlippedLabel().craft(mechanism, Insertion(), canaries=5, seed=0)
        assert crafted.targets.shape[1:] == mechanism.data.targets.shape[1:]
        for features, target in zip(crafted.features, crafted.targets, strict=True):
            rows = (mechanism.data.features == features.numpy()).reshape(24, -1).all(1)
            assert (mechanism.data.targets[rows] != target.numpy()).all()
    with pytest.raises(InvalidInput, match="flipped-label"):
        FlippedLabel().craft(training("none"), Insertion(), canaries=1, seed=0)


def test_canaries_must_have_the_shape_of_the_targets() -> None:
    mechanism = training("several outputs")
    points = CanaryPoints(features=torch.zeros(1, 5), targets=torch.zeros(1))
    with pytest.raises(InvalidInput, match="targets of canaries"):
        check_game(Game(mechanism=mechanism, adversary=FlippedLabel(), canaries=points, runs=2))


def test_the_loss_of_a_sequence_is_the_mean_over_counted_places() -> None:
    outputs, targets = torch.randn(3, 4, 5), torch.randint(0, 5, (3, 4))
    targets[1, 2:] = -100
    expected = [
        nn.functional.cross_entropy(out, target)
        for out, target in zip(outputs, targets, strict=True)
    ]
    torch.testing.assert_close(cross_entropy(outputs, targets), torch.stack(expected))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (KINDS["token sequences"][2], "9 classes in targets of shape (6,)"),
        (KINDS["regression"][2], "real targets of shape ()"),
        (KINDS["none"][2], "no targets"),
    ],
)
def test_a_data_set_describes_its_targets(data: Examples, words: str) -> None:
    assert words in repr(data)
    assert data.take([1, 2]).targets.shape == (2, *data.targets.shape[1:])
