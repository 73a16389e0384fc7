"""Several processes give the bits that one gives, and their failures are not swallowed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.errors import DpauditError
from dpaudit.executors import LocalProcesses
from dpaudit.games import Game, play, prepare
from dpaudit.games.budget import can_be_sent
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD

# Another process imports these by name, so they must lie in a file of their own.
PARTS = """
import os
import torch
from torch.nn import functional
from dpaudit.threat_models import CraftedDimensions, HiddenStateAdversary


def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def loss(outputs, targets):
    print("users print all kinds of things")
    return functional.cross_entropy(outputs, targets, reduction="none")


class Moved(HiddenStateAdversary):
    name, paper = "moved", "none"

    def craft(self, mechanism, insertion, *, canaries, seed):
        raise NotImplementedError

    def score(self, view, canaries):
        return -(view.final - view.initial)[:, canaries.dimensions]


class Dying(Moved):
    def score(self, view, canaries):
        os._exit(9)
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "parts_of_a_game.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "parts_of_a_game", raising=False)
    return importlib.import_module("parts_of_a_game")


def game(parts: ModuleType, adversary: str = "Moved") -> Game:
    generator = np.random.default_rng(0)
    data = Examples(
        features=generator.standard_normal((30, 4)).astype(np.float32),
        targets=generator.integers(0, 2, 30),
        classes=2,
    )
    mechanism = DPSGD(
        build_model=parts.build,
        loss=parts.loss,
        data=data,
        batches=FixedBatches(batch_size=10),
        steps=3,
        learning_rate=0.5,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    canaries = parts.CraftedDimensions(dimensions=torch.tensor([2, 5]), norm=1.0)
    return Game(
        mechanism=mechanism, adversary=getattr(parts, adversary)(), canaries=canaries, runs=10
    )


def speed(workers: int) -> Speed:
    return Speed(device="cpu", compile=False, tile_size=2, workers=workers)


def test_two_processes_give_the_bits_of_one(parts: ModuleType) -> None:
    alone = dict(play(prepare(game(parts), speed(1))))
    together = dict(play(prepare(game(parts), speed(2)), done={3}))
    assert sorted(together) == [0, 1, 2, 4]
    for tile, block in together.items():
        np.testing.assert_array_equal(block.score, alone[tile].score)
        np.testing.assert_array_equal(block.inserted, alone[tile].inserted)


def test_lost_tiles_are_reported_after_the_others(parts: ModuleType) -> None:
    once = LocalProcesses(workers=2, attempts=1)
    with pytest.raises(DpauditError, match=r"tile \d \(and 1 more\).*1 attempts.*exit code 9"):
        list(play(prepare(game(parts, "Dying"), speed(2)), done={0, 1, 2}, executor=once))


def test_games_that_cannot_be_sent_are_recognised(parts: ModuleType) -> None:
    sendable = game(parts)
    assert can_be_sent(sendable)

    def here() -> torch.nn.Module:
        return torch.nn.Linear(4, 2)

    settings: dict[str, Any] = {**vars(sendable.mechanism), "build_model": here}
    local = Game(**{**vars(sendable), "mechanism": DPSGD(**settings)})
    assert not can_be_sent(local)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_processes_share_a_gpu_and_give_the_bits_of_one(parts: ModuleType) -> None:
    alone, together = (
        dict(
            play(
                prepare(
                    game(parts),
                    Speed(device="cuda", compile=False, tile_size=2, workers=workers),
                )
            )
        )
        for workers in (1, 2)
    )
    for tile, block in alone.items():
        np.testing.assert_array_equal(block.score, together[tile].score)
