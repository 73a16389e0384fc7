"""The choice of tile size, compilation and processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import cross_entropy
from torch import Tensor

from dpaudit._cores import cores
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity
from dpaudit.games import Game, prepare
from dpaudit.games.budget import CACHE, _Counter, gpus
from dpaudit.games.tiles import engine_of
from dpaudit.mechanisms.augmentation import FlipAndShift
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import Canaries, CraftedDimensions, HiddenStateAdversary


class Silent(HiddenStateAdversary):
    name, paper = "silent", "none"

    def craft(self, *_: Any, **__: Any) -> Canaries:
        raise NotImplementedError

    def score(self, view: Any, canaries: Canaries) -> Tensor:
        return torch.zeros(len(view.final), canaries.count)


def game(case: Any, *, runs: int, steps: int, batch_size: int) -> Game:
    repeat = -(-batch_size // len(case.targets))
    data = Examples(
        features=np.concatenate([case.features.numpy()] * repeat),
        targets=np.concatenate([case.targets.numpy()] * repeat),
        classes=11,
    )
    mechanism = DPSGD(
        build_model=case.build,
        loss=cross_entropy,
        data=data,
        batches=FixedBatches(batch_size=batch_size),
        steps=steps,
        learning_rate=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    canaries = CraftedDimensions(dimensions=torch.tensor([0]), norm=1.0)
    return Game(mechanism=mechanism, adversary=Silent(), canaries=canaries, runs=runs)


def settled(described: Game, speed: Speed | None = None) -> Speed:
    return prepare(described, speed or Speed(device="cpu")).speed


def test_the_papers_housing_audit_is_compiled_and_uses_every_core(cases: dict[str, Any]) -> None:
    described = game(cases["fcnn"], runs=5000, steps=250, batch_size=400)
    # The test's own functions lie in a module that other processes cannot import.
    speed = settled(described, Speed(device="cpu", workers=cores()))
    assert speed.compile is True
    assert speed.workers == cores()
    assert 32 <= (speed.tile_size or 0) <= 512


def test_small_games_are_played_at_once(cases: dict[str, Any]) -> None:
    speed = settled(game(cases["fcnn"], runs=20, steps=5, batch_size=12))
    assert (speed.compile, speed.workers, speed.tile_size) == (False, 1, 20)


def test_tiles_are_of_one_size_and_cover_all_runs(cases: dict[str, Any]) -> None:
    described = game(cases["fcnn"], runs=1001, steps=5, batch_size=400)
    prepared = prepare(described, Speed(device="cpu"))
    tiles, size = prepared.tiles, prepared.tile_size
    assert [run for tile in range(tiles) for run in prepared.runs_of(tile)] == list(range(1001))
    assert (tiles - 1) * size < 1001 <= tiles * size
    assert tiles * size - 1001 < tiles


def test_settling_twice_changes_nothing(cases: dict[str, Any]) -> None:
    described = game(cases["convnet"], runs=30, steps=5, batch_size=20)
    once = settled(described)
    assert settled(described, once) == once


def test_what_the_user_sets_is_kept(cases: dict[str, Any]) -> None:
    described = game(cases["fcnn"], runs=100, steps=5, batch_size=12)
    asked = Speed(device="cpu", tile_size=7, compile=False, workers=2, precision="float64")
    assert settled(described, asked) == asked


def test_larger_models_and_batches_cost_more(cases: dict[str, Any]) -> None:
    def price(name: str, batch_size: int, steps: int = 5) -> Any:
        described = game(cases[name], runs=4, steps=steps, batch_size=batch_size)
        return prepare(described, Speed(device="cpu")).cost

    small, large = price("convnet", 10), price("convnet", 20)
    assert small.bytes < large.bytes
    assert large.operations == pytest.approx(2 * small.operations)
    assert price("convnet", 10, steps=10).operations == pytest.approx(2 * small.operations)
    assert price("fcnn", 10).bytes * 100 < small.bytes
    # 0.45 billion operations a step at B = 128, counted by hand for the paper's ConvNet.
    assert large.operations / 5 / 20 * 128 == pytest.approx(0.45e9, rel=0.35)


def half_frozen() -> torch.nn.Module:
    layers = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 2000), torch.nn.Linear(2000, 2)]
    for layer in layers[1:]:
        layer.requires_grad_(False)
    return torch.nn.Sequential(*layers)


def test_frozen_layers_are_computed_and_store_their_outputs(cases: dict[str, Any]) -> None:
    described = game(replace(cases["fcnn"], build=half_frozen), runs=4, steps=5, batch_size=12)
    price = prepare(described, Speed(device="cpu")).cost
    # Forward, and backward to the inputs of frozen layers and to the weight of the first one.
    by_hand = 2 * (2 * 8 * 8) + 2 * 2 * (8 * 2000 + 2000 * 2)
    assert price.operations == pytest.approx(12 * 5 * by_hand)
    assert price.bytes > 12 * 2000 * 4


@pytest.mark.parametrize("name", ["convnet", "small resnet", "embedding and layer norm"])
def test_a_step_allocates_at_most_what_is_estimated(cases: dict[str, Any], name: str) -> None:
    prepared = prepare(game(cases[name], runs=1, steps=2, batch_size=20), Speed(device="cpu"))
    engine, counter = engine_of(prepared, runs=1), _Counter()
    parameters = torch.cat([p.detach().flatten() for p in cases[name].build().parameters()])
    with counter:
        next(engine.states(parameters.unsqueeze(0), torch.arange(1), torch.ones(1, 1)))
    assert max(counter.bytes) <= prepared.cost.bytes <= 2 * max(counter.bytes)


def test_every_view_of_a_virtual_batch_is_in_memory(cases: dict[str, Any]) -> None:
    described = game(cases["convnet"], runs=4, steps=2, batch_size=60)

    def price(views: int, virtual_batch: int | None) -> Any:
        augmentation = FlipAndShift(views=views) if views else None
        mechanism = replace(described.mechanism, augmentation=augmentation)
        speed = Speed(device="cpu", virtual_batch=virtual_batch)
        return prepare(replace(described, mechanism=mechanism), speed).cost

    assert price(0, 20).bytes < 0.4 * price(0, None).bytes
    assert price(5, 4).bytes == price(0, 20).bytes
    assert price(5, 4).operations == 5 * price(0, 20).operations


def test_estimating_does_not_import_the_compiler_of_torch() -> None:
    code = """
import sys
from dpaudit.audits.mechanism_game import MechanismGame
from dpaudit.engine import Speed
MechanismGame("housing", runs=10, speed=Speed(device="cpu"))
sys.exit(bool({"torch._dynamo", "sympy"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_larger_than_the_cache_still_gets_a_tile(cases: dict[str, Any]) -> None:
    described = game(cases["convnet"], runs=30, steps=5, batch_size=40)
    assert prepare(described, Speed(device="cpu")).cost.bytes > CACHE
    assert settled(described).tile_size == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tile_size": 0}, "tile_size"),
        ({"workers": 0}, "workers"),
        ({"precision": "float16"}, "precision"),
        ({"compile": "maybe"}, "compile"),
        ({"convolutions": "fft"}, "convolutions"),
    ],
)
def test_invalid_speeds_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Speed(**settings)


@pytest.mark.parametrize("device", ["cuda:99", "a toaster"])
def test_missing_devices_are_refused(device: str) -> None:
    with pytest.raises(InvalidInput, match="device"):
        Speed(device=device).torch_device()


def test_tiles_are_not_counted_at_an_open_speed(cases: dict[str, Any]) -> None:
    prepared = prepare(game(cases["fcnn"], runs=4, steps=5, batch_size=12), Speed(device="cpu"))
    with pytest.raises(InvalidInput, match="tile_size"):
        _ = replace(prepared, speed=Speed()).tiles


def test_a_tile_is_at_most_the_game(case: Any) -> None:
    described = game(case, runs=10, steps=2, batch_size=4)
    assert settled(described, Speed(device="cpu", tile_size=10**9)).tile_size == 10


def test_gpus_are_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert gpus(torch.device("cuda")) == ("0", "1", "2", "3")
    assert gpus(torch.device("cuda:2")) == ("2",)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-7")
    assert gpus(torch.device("cuda")) == ("5", "GPU-7")


@pytest.mark.parametrize(("count", "asked", "workers"), [(4, None, 4), (1, None, 1), (1, 2, 2)])
def test_one_process_per_gpu(
    case: Any, monkeypatch: pytest.MonkeyPatch, count, asked, workers
) -> None:
    if torch.cuda.is_available():
        torch.cuda.init()  # it would look for the GPUs that the next lines only claim
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 * 2**30, 8 * 2**30))
    monkeypatch.setattr("dpaudit.games.budget.can_be_sent", lambda game: True)
    described = game(case, runs=1000, steps=2, batch_size=4)
    speed = settled(described, Speed(device="cuda", workers=asked))
    assert speed.workers == workers
    assert speed.tile_size is not None
    assert -(-1000 // speed.tile_size) >= workers


def test_tiles_fit_the_smallest_gpu_of_this_machine(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = game(case, runs=100_000, steps=2, batch_size=4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    alike = Speed(convolutions="library")  # on both devices
    cost = prepare(described, replace(alike, device="cpu")).cost.bytes
    free = {0: 2000 * cost, 1: 200 * cost}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (free[number], 0))
    assert settled(described, replace(alike, device="cuda")).tile_size == 100  # half of the memory
    assert settled(described, replace(alike, device="cuda:0")).tile_size == 1000


def test_kernels_that_store_no_patches_need_less_memory(
    cases: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    described = game(cases["convnet"], runs=10, steps=2, batch_size=4)
    with_patches = prepare(described, Speed(device="cpu")).cost.bytes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("dpaudit.games.budget.fastest_convolutions", lambda *_: "kernels")
    assert prepare(described, Speed(device="cpu")).cost.bytes < with_patches


@pytest.mark.parametrize(
    ("capacity", "device", "size"),
    [
        (Capacity(tiles=1000, device="cuda"), "cuda", 7),  # 16 tiles per worker
        (Capacity(tiles=1, device="cuda"), "cuda", 6250),
    ],
)
def test_tiles_fit_the_machines_of_an_executor(
    cases: dict[str, Any], capacity: Capacity, device: str, size: int
) -> None:
    """This machine needs no GPU for that."""
    described = game(cases["fcnn"], runs=100_000, steps=2, batch_size=4)
    speed = prepare(described, Speed(), capacity).speed
    assert (speed.device, speed.tile_size, speed.workers) == (device, size, capacity.tiles)
    kept = prepare(described, Speed(tile_size=11), capacity).speed
    assert kept.tile_size == 11


def test_a_gpu_that_the_executor_does_not_reserve_is_refused(case: Any) -> None:
    described = game(case, runs=10, steps=2, batch_size=4)
    with pytest.raises(InvalidInput, match="gpus_per_tile"):
        prepare(described, Speed(device="cuda"), Capacity(tiles=2, device="cpu"))


def test_kernels_are_refused_on_a_cpu(case: Any) -> None:
    with pytest.raises(InvalidInput, match="needs a GPU; use convolutions='auto'"):
        prepare(
            game(case, runs=10, steps=2, batch_size=4), Speed(device="cpu", convolutions="kernels")
        )


def test_tf32_is_refused_on_a_cpu_that_would_compute_in_float32(case: Any) -> None:
    described = game(case, runs=10, steps=2, batch_size=4)
    with pytest.raises(InvalidInput, match="precision must be auto, float32, bfloat16 or float64"):
        prepare(described, Speed(device="cpu", precision="tf32"))
    with pytest.raises(InvalidInput, match="precision must be auto"):
        prepare(described, Speed(precision="tf32"), Capacity(tiles=2, device="cpu"))
