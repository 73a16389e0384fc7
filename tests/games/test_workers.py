"""Several processes give the bits that one gives, and their failures are not swallowed."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
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


class Failing(Moved):
    def score(self, view, canaries):
        raise ArithmeticError("no score today")


class Dying(Moved):
    def score(self, view, canaries):
        os._exit(9)


class DyingOnce(Moved):
    def score(self, view, canaries):
        mark = __file__ + ".mark"
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)
        return super().score(view, canaries)
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


ONE = LocalProcesses(workers=1)  # every process that is started costs seconds


def speed(workers: int) -> Speed:
    return Speed(device="cpu", compile=False, tile_size=2, workers=workers)


def test_two_processes_give_the_bits_of_one(parts: ModuleType) -> None:
    alone = dict(play(prepare(game(parts), speed(1))))
    together = dict(play(prepare(game(parts), speed(2)), done={3}))
    assert sorted(together) == [0, 1, 2, 4]
    for tile, block in together.items():
        np.testing.assert_array_equal(block.score, alone[tile].score)
        np.testing.assert_array_equal(block.inserted, alone[tile].inserted)


def test_an_error_in_a_worker_is_raised_here(parts: ModuleType) -> None:
    with pytest.raises(ArithmeticError, match="no score today"):
        list(play(prepare(game(parts, "Failing"), speed(2)), executor=ONE))


def test_a_worker_that_dies_is_reported(parts: ModuleType) -> None:
    once = LocalProcesses(workers=2, attempts=1)
    with pytest.raises(DpauditError, match=r"tile \d \(and 1 more\).*1 attempts.*exit code 9"):
        list(play(prepare(game(parts, "Dying"), speed(2)), done={0, 1, 2}, executor=once))


def test_a_killed_worker_is_replaced(parts: ModuleType) -> None:
    alone = dict(play(prepare(game(parts), speed(1))))
    notices: list[str] = []
    dying = prepare(game(parts, "DyingOnce"), speed(2))
    together = dict(play(dying, notify=notices.append, executor=ONE))
    assert any("it is played again" in notice for notice in notices)
    for tile, block in alone.items():
        np.testing.assert_array_equal(block.score, together[tile].score)


def test_leaving_early_leaves_no_process_behind(parts: ModuleType) -> None:
    tiles = play(prepare(game(parts), speed(2)), executor=ONE)
    next(tiles)
    tiles.close()
    deadline = time.monotonic() + 60
    while _children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _children()


def _children() -> list[str]:
    task = Path(f"/proc/{os.getpid()}/task")
    if not task.exists():
        pytest.skip("needs /proc")
    found = []
    for thread in task.iterdir():
        # A thread or a process may end between being listed and being looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if b"_worker import serve" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(child)
    return found


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
