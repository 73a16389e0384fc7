"""Every mistake named in the issue is a clear error, before any training."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import pytest
import torch

from dpaudit.adversaries import (
    ADVERSARIES,
    Adversary,
    Canaries,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
    RandomDimension,
)
from dpaudit.audits import audit, plan
from dpaudit.data import Examples
from dpaudit.engine.speed import Speed
from dpaudit.engine.training import Engine
from dpaudit.errors import InvalidInput, UnsupportedModel
from dpaudit.mechanisms.batches import FixedBatches, PoissonBatches, ReshuffledEpochs
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, Insertion
from dpaudit.presets import preset
from dpaudit.testing import easy_training

SPEED = Speed(device="cpu", compile=False, workers=1)


@pytest.fixture(autouse=True)
def _no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Iterator[torch.Tensor]:
        pytest.fail("a training was begun")

    monkeypatch.setattr(Engine, "states", refuse)


def _changed(**fields: object) -> DPSGD:
    return dataclasses.replace(easy_training(), **fields)  # type: ignore[arg-type]


def _data(**fields: object) -> Examples:
    return dataclasses.replace(easy_training().data, **fields)  # type: ignore[arg-type]


def _one_nan() -> Examples:
    features = easy_training().data.features.copy()
    features[7, 2] = np.nan
    return _data(features=features)


def _half_precision() -> torch.nn.Module:
    return torch.nn.Linear(6, 3).half()


def _mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, targets)


@dataclasses.dataclass(frozen=True)
class _Crafts(HiddenStateAdversary):
    """Returns what it is given."""

    name: ClassVar[str] = "crafts"
    paper: ClassVar[str] = ""
    canaries: Canaries

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return self.canaries

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        return view.final[:, : canaries.count]


def _of(canaries: Canaries) -> Callable[[], object]:
    return lambda: audit(easy_training(), _Crafts(canaries), runs=10, speed=SPEED)


def _audit(**settings: object) -> Callable[[], object]:
    return lambda: audit(easy_training(), RandomDimension(), speed=SPEED, **settings)  # type: ignore[arg-type]


TABLE: dict[str, tuple[Callable[[], object], str]] = {
    "unknown preset": (lambda: preset("mnist"), "preset must be one of housing, .*got 'mnist'"),
    "period beyond the steps": (
        _audit(insertion=Insertion(period=21)),
        r"period must be at most the number of steps \(20\), got 21",
    ),
    "clip norm of 0": (lambda: _changed(clip_norm=0.0), "clip_norm must be above 0, got 0.0"),
    "negative clip norm": (lambda: _changed(clip_norm=-2.0), "clip_norm must be above 0, got -2"),
    "negative noise": (
        lambda: _changed(noise_multiplier=-1.0),
        "noise_multiplier must be at least 0, got -1.0",
    ),
    "more steps than memory holds": (
        lambda: _changed(steps=10**20),
        "steps must be at most 100,000,000, got 100000000000000000000; train for fewer",
    ),
    "batch larger than the data": (
        lambda: _changed(batches=FixedBatches(batch_size=121)),
        r"batch_size must be at most the number of examples \(120\), got 121",
    ),
    "crafted dimension longer than C": (
        _of(CraftedDimensions(dimensions=torch.arange(1), norm=1.5)),
        r"norm of a crafted gradient must be .* at most the clip norm \(1\), got 1.5",
    ),
    "crafted gradient longer than C": (
        _of(CraftedGradients(gradients=torch.ones(1, 21))),
        r"norm of a crafted gradient must be .* at most the clip norm \(1\), got 4.58",
    ),
    "crafted gradient of another model": (
        _of(CraftedGradients(gradients=torch.ones(1, 20))),
        r"gradients must have shape \(canaries, 21\), got \(1, 20\)",
    ),
    "label out of range": (
        lambda: _data(classes=2),
        "targets must be in 0..1 for 2 classes: .* the first is 2 at example",
    ),
    "NaN in the data": (_one_nan, "features must be finite .* example 7 with NaN"),
    "a loss of the whole batch": (
        lambda: audit(_changed(loss=_mean_loss), RandomDimension(), runs=10, speed=SPEED),
        r"loss must give one number per example, shape \(4,\) .*reduction='none'",
    ),
    "a model in float16": (
        lambda: audit(
            _changed(build_model=_half_precision), RandomDimension(), runs=10, speed=SPEED
        ),
        "parameter 'weight' is float16; build the model in float32",
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_table_of_mistakes(case: str) -> None:
    attempt, message = TABLE[case]
    with pytest.raises(InvalidInput, match=message):
        attempt()


@pytest.mark.parametrize(
    "seeded",
    [
        lambda seed: FixedInitialisation(seed=seed),
        lambda seed: FixedBatches(batch_size=2, seed=seed),
        lambda seed: ReshuffledEpochs(batch_size=2, seed=seed),
        lambda seed: PoissonBatches(rate=0.5, seed=seed),
    ],
    ids=["initialisation", "fixed", "reshuffled", "poisson"],
)
def test_seeds_that_no_generator_takes(seeded: Callable[[int], object]) -> None:
    seeded(2**64 - 1)
    with pytest.raises(InvalidInput, match=r"seed must be below 2\*\*64, got 18446744073709551616"):
        seeded(2**64)
    with pytest.raises(InvalidInput, match="seed must be at least 0, got -1"):
        seeded(-1)


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("doing", [audit, plan])
def test_more_canaries_than_there_is_room_for(
    adversary: Adversary, doing: Callable[..., object]
) -> None:
    with pytest.raises(InvalidInput, match=r"canaries must be (at most|1 for) .*, got 121"):
        doing(easy_training(), adversary, runs=10, canaries=121, speed=SPEED)


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": _mean_loss}, "loss must give one number per example"),
        ({"build_model": _half_precision}, "is float16"),
        ({"build_model": lambda: torch.nn.BatchNorm1d(6)}, "BatchNorm1d.*GroupNorm"),
    ],
    ids=["loss", "float16", "batch norm"],
)
def test_whoever_the_adversary_is(
    adversary: Adversary, change: dict[str, object], message: str
) -> None:
    """Those who simulate must not train either."""
    with pytest.raises(InvalidInput, match=message):
        audit(_changed(**change), adversary, runs=10, speed=SPEED)


def test_layers_that_mix_examples_have_an_error_of_their_own() -> None:
    mixing = _changed(build_model=lambda: torch.nn.BatchNorm1d(6))
    with pytest.raises(UnsupportedModel, match="mixes the examples of a batch"):
        audit(mixing, RandomDimension(), runs=10, speed=SPEED)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(InvalidInput, match="device must be auto, cpu, cuda"):
        audit(easy_training(), RandomDimension(), runs=10, speed=Speed(device="abacus"))


@pytest.mark.parametrize("call", ["audit", "plan"])
def test_without_torch_the_remedy_is_named(call: str) -> None:
    """In a process of its own, where no module has imported torch before."""
    code = f"import sys; sys.modules['torch'] = None; import dpaudit; dpaudit.{call}('housing')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra" in done.stderr
    assert "pip install 'dpaudit[train]'" in done.stderr
