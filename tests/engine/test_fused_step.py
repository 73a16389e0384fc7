"""The fused C++ step: equal to its slow twin, independent of tiles and threads."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.adversaries import RandomDimension, RandomDirection
from dpaudit.data import Examples
from dpaudit.engine import Speed, fused
from dpaudit.engine.clipped_sums import Taps
from dpaudit.engine.fused import can_build, fused_widths
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, play, prepare
from dpaudit.mechanisms.batches import FixedBatches, PoissonBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FreshInitialisation, Insertion
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.mechanisms.optimizers import SGD
from dpaudit.threat_models import Canaries, CanaryPoints, CraftedDimensions

CPU = Speed(device="cpu")
needs_compiler = pytest.mark.skipif(not can_build(), reason="no C++ compiler")


def network(*widths: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(widths[0], widths[1])]
    for before, after in itertools.pairwise(widths[1:]):
        layers += [nn.ReLU(), nn.Linear(before, after)]
    return nn.Sequential(*layers)


def training(*widths: int, **changes: Any) -> DPSGD:
    random = np.random.default_rng(0)
    features = random.standard_normal((50, widths[0])).astype(np.float32)
    data = Examples(
        features=features, targets=random.integers(0, widths[-1], 50), classes=widths[-1]
    )
    settings: dict[str, Any] = {
        "build_model": functools.partial(network, *widths),
        "loss": cross_entropy,
        "data": data,
        "batches": FixedBatches(batch_size=21),
        "steps": 6,
        "learning_rate": 0.5,
        "clip_norm": 0.7,
        "noise_multiplier": 1.0,
    }
    return DPSGD(**{**settings, **changes})


def points(widths: tuple[int, ...]) -> CanaryPoints:
    features = torch.from_numpy(np.random.default_rng(1).standard_normal((3, widths[0])))
    return CanaryPoints(features=features.float(), targets=torch.tensor([0, 1, 1]))


def final(
    mechanism: DPSGD, canaries: Canaries | None, *, compiled: Any, **how: Any
) -> torch.Tensor:
    runs = torch.arange(5)
    engine = Engine(
        mechanism, runs=5, speed=CPU, canaries=canaries, seed=3, compiled=compiled, **how
    )
    start = initial_parameters(mechanism, seed=3, runs=runs)
    count = 0 if canaries is None else canaries.count
    coins = torch.arange(5 * count).view(5, count).remainder(2).float()
    with torch.no_grad():
        states = [state[0] for state in engine.states(start, runs, coins)]
    assert not engine.notices  # it is fused where that was asked for
    return states[-1]


@needs_compiler
@pytest.mark.parametrize("widths", [(8, 6, 2), (3, 2), (5, 17, 4, 3)])
@pytest.mark.parametrize("kind", ["none", "dimensions", "points"])
def test_the_fused_step_equals_its_slow_twin(widths: tuple[int, ...], kind: str) -> None:
    dimensions = CraftedDimensions(dimensions=torch.tensor([1, 4]), norm=0.7)
    canaries = {"none": None, "dimensions": dimensions, "points": points(widths)}[kind]
    mechanism = training(*widths)
    fast = final(mechanism, canaries, compiled="fused")
    torch.testing.assert_close(
        fast, final(mechanism, canaries, compiled=False), rtol=1e-4, atol=1e-5
    )


@needs_compiler
@pytest.mark.parametrize(
    "changes",
    [
        {"weight_decay": 0.1},
        {"noise_multiplier": 0.0},
        {"batches": PoissonBatches(rate=0.3)},
        {"initialisation": FreshInitialisation()},
    ],
)
def test_other_mechanisms_equal_the_slow_twin(changes: dict[str, Any]) -> None:
    mechanism, canaries = training(8, 6, 2, **changes), points((8,))
    fast = final(mechanism, canaries, compiled="fused")
    torch.testing.assert_close(
        fast, final(mechanism, canaries, compiled=False), rtol=1e-4, atol=1e-5
    )


@needs_compiler
@pytest.mark.parametrize("kind", ["dimensions", "points"])
@pytest.mark.parametrize("batches", [FixedBatches(batch_size=21), PoissonBatches(rate=0.3)])
def test_several_steps_in_one_call_equal_single_steps(kind: str, batches: Any) -> None:
    dimensions = CraftedDimensions(dimensions=torch.tensor([1, 4, 0]), norm=0.7)
    canaries = dimensions if kind == "dimensions" else points((8,))
    mechanism, runs = training(8, 6, 2, steps=150, batches=batches), torch.arange(5)
    engine = Engine(
        mechanism,
        runs=5,
        speed=CPU,
        canaries=canaries,
        insertion=Insertion(period=2),
        compiled="fused",
    )
    start = initial_parameters(mechanism, seed=0, runs=runs)
    coins = torch.arange(15).view(5, 3).remainder(2).float()
    every = list(engine.states(start, runs, coins))
    after = (2, 7, 8, 150)  # with more steps in one call than the most
    chosen = list(engine.states(start, runs, coins, after))
    for steps, found in zip(after, chosen, strict=True):
        assert torch.equal(found, every[steps - 1])


@needs_compiler
def test_scores_do_not_depend_on_tiles_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = training(8, 6, 2, initialisation=FreshInitialisation())
    adversary = RandomDimension()
    crafted = adversary.craft(mechanism, None, canaries=1, seed=0)  # type: ignore[arg-type]
    game = Game(mechanism=mechanism, adversary=adversary, canaries=crafted, runs=40, coin="half")

    def scores(tile_size: int, threads: int) -> np.ndarray:
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        speed = replace(CPU, compile="fused", tile_size=tile_size)
        tiles = dict(play(prepare(game, speed)))
        return np.concatenate([tiles[number].score for number in sorted(tiles)])

    expected = scores(40, 1)
    for tile_size, threads in ((40, 2), (13, 3), (1, 1)):
        np.testing.assert_array_equal(scores(tile_size, threads), expected)


@needs_compiler
def test_scores_by_products_of_matrices_do_not_depend_on_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism, adversary = training(8, 6, 2), RandomDirection()
    crafted = adversary.craft(mechanism, Insertion(), canaries=1, seed=0)
    game = Game(mechanism=mechanism, adversary=adversary, canaries=crafted, runs=500, coin="half")
    ready = prepare(game, replace(CPU, compile="fused", tile_size=500))

    def scores(threads: int) -> np.ndarray:
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        return dict(play(ready))[0].score

    expected = scores(1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(scores(threads), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": SGD(momentum=0.9)},
        {"loss": lambda outputs, targets: 2 * cross_entropy(outputs, targets)},
        {"build_model": lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))},
        {"build_model": lambda: nn.Sequential(nn.Linear(8, 2, bias=False))},
        {"build_model": lambda: nn.Sequential(nn.Linear(8, 500), nn.ReLU(), nn.Linear(500, 2))},
    ],
)
def test_other_trainings_are_not_fused(changes: dict[str, Any]) -> None:
    assert fused_widths(training(8, 6, 2), CPU, Taps()) == (8, 6, 2)
    assert fused_widths(training(8, 6, 2, **changes), CPU, Taps()) is None
    assert fused_widths(training(8, 6, 2), replace(CPU, precision="float64"), Taps()) is None


def test_a_game_that_cannot_be_fused_is_refused() -> None:
    mechanism = training(8, 6, 2, optimizer=SGD(momentum=0.9))
    canaries = CraftedDimensions(dimensions=torch.tensor([0]), norm=0.7)
    game = Game(mechanism=mechanism, adversary=RandomDimension(), canaries=canaries, runs=4)
    with pytest.raises(InvalidInput, match="fused"):
        prepare(game, replace(CPU, compile="fused"))


def test_without_a_compiler_the_step_is_not_fused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(fused, "_cache_folder", lambda: tmp_path)  # nothing compiled earlier
    fused.build.cache_clear()
    try:
        engine = Engine(training(8, 6, 2), runs=2, speed=CPU, compiled="fused")
    finally:
        fused.build.cache_clear()
    assert "compiler" in engine.notices[0]


@needs_compiler
@pytest.mark.parametrize("error", [0.5, float("nan")])
def test_a_wrong_fused_step_is_not_used(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    right = fused.FusedSteps.__call__
    monkeypatch.setattr(
        fused.FusedSteps, "__call__", lambda *args, **named: right(*args, **named) + error
    )
    mechanism, runs = training(8, 6, 2), torch.arange(3)
    engine = Engine(mechanism, runs=3, speed=CPU, compiled="fused")
    start = initial_parameters(mechanism, seed=0, runs=runs)
    found = list(engine.states(start, runs, torch.zeros(3, 0)))[-1]
    plain = Engine(mechanism, runs=3, speed=CPU, compiled=False)
    torch.testing.assert_close(found, list(plain.states(start, runs, torch.zeros(3, 0)))[-1])
    assert "compiled the step incorrectly" in engine.notices[0]


@needs_compiler
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0], ids=["right", "too small", "without examples"])
def test_wrong_fused_gradients_are_found_though_the_noise_is_a_thousand_times_longer(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    right = fused.FusedSteps.__init__

    def wrong(self: Any, *args: Any, present: torch.Tensor, **named: Any) -> None:
        right(self, *args, present=present * (1 - share), **named)

    monkeypatch.setattr(fused.FusedSteps, "__init__", wrong)
    mechanism, runs = training(8, 6, 2, noise_multiplier=1e4), torch.arange(2)
    engine = Engine(mechanism, runs=2, speed=CPU, compiled="fused")
    start = initial_parameters(mechanism, seed=0, runs=runs)
    list(engine.states(start, runs, torch.zeros(2, 0)))
    assert bool(engine.notices) == bool(share)


def zero_network() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 2))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


@needs_compiler
@pytest.mark.parametrize("noise_multiplier", [0.5, 4.0])
def test_gradients_that_cancel_are_no_error_of_the_compiler(noise_multiplier: float) -> None:
    """Each example occurs in both classes, so that without noise a step is only rounding."""
    random = np.random.default_rng(0)
    features = random.standard_normal((200, 8)).astype(np.float32).repeat(2, axis=0)
    mixed = random.permutation(400)
    data = Examples(features=features[mixed], targets=(np.arange(400) % 2)[mixed], classes=2)
    mechanism = training(
        *(8, 2),
        data=data,
        build_model=zero_network,
        batches=FixedBatches(batch_size=400),
        noise_multiplier=noise_multiplier,
    )
    runs = torch.arange(4)
    engine = Engine(mechanism, runs=4, speed=CPU, compiled="fused")
    start = initial_parameters(mechanism, seed=0, runs=runs)
    list(engine.states(start, runs, torch.zeros(4, 0)))
    assert engine.notices == ()


@pytest.mark.parametrize("widths", [(8, 6, 2), (3, 2), (5, 17, 4, 3)])
@pytest.mark.parametrize("clipped", [True, False])
def test_one_run_without_vmap_equals_one_with_it(widths: tuple[int, ...], clipped: bool) -> None:
    mechanism, runs = training(*widths), torch.arange(1)
    canaries = points(widths)
    plain = Engine(mechanism, runs=1, speed=CPU, canaries=canaries, private=clipped)
    start = initial_parameters(mechanism, seed=0, runs=torch.arange(2))
    found = list(plain.states(start[:1], runs, torch.ones(1, 3)))[-1]
    several = Engine(mechanism, runs=2, speed=CPU, canaries=canaries, private=clipped)
    both = list(several.states(start, torch.arange(2), torch.ones(2, 3)))[-1]
    torch.testing.assert_close(found, both[:, :1], rtol=1e-5, atol=1e-6)


@needs_compiler
def test_the_fused_step_and_simulations_do_not_import_the_compiler_of_torch() -> None:
    # It takes a second, which is a sixth of the default audit.
    code = """
import sys
import torch
from dpaudit.adversaries import SimulatedDimension
from dpaudit.engine import Speed
from dpaudit.engine.speed import automatic_device
from dpaudit.games import Game, play, prepare
from dpaudit.presets import preset
mechanism, adversary = preset("housing").training(steps=4), SimulatedDimension()
with automatic_device(torch.device("cpu")):
    canaries = adversary.craft(mechanism, None, canaries=1, seed=0)
game = Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=8)
list(play(prepare(game, Speed(device="cpu", compile="fused"))))
sys.exit(bool({"torch._dynamo", "sympy"} & set(sys.modules)))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
