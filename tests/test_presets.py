"""Presets: the contract, the paper's hyperparameters, and missing data."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpaudit import presets
from dpaudit.errors import DataError, InvalidInput
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import FixedInitialisation
from dpaudit.presets import INSERTIONS, PRESETS, preset
from dpaudit.testing import check_preset

RECORD = 3073


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """A folder with one small batch in the official binary layout."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records = np.random.default_rng(0).integers(0, 256, size=(200, RECORD), dtype=np.uint8)
    records[:, 0] %= 10
    (folder / "data_batch_1.bin").write_bytes(records.tobytes())
    return tmp_path


def test_the_table_of_hyperparameters() -> None:
    expected = {
        "housing": (400, 0.1, 1.0),
        "convnet": (128, 0.01, 1.0),
        "resnet18": (128, 0.01, 1.0),
        "alexnet-head": (128, 0.01, 1.0),
    }
    for name, values in expected.items():
        one = PRESETS[name]
        assert (one.batch_size, one.learning_rate, one.clip_norm) == values
        assert one.noise_multiplier == 4.0
    assert INSERTIONS == 250


LARGE = {"resnet18", "gpt", "vit-tiny", "wrn-16-4", "gpt2-lora"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in PRESETS],
)
def test_registered_presets_keep_the_contract(name: str, cifar: Path) -> None:
    if name.startswith("alexnet"):
        pytest.skip("needs AlexNet's weights")
    if name == "gpt2-lora":
        pytest.importorskip("transformers")
    check_preset(preset(name), data_dir=cifar)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_function(name: str) -> None:
    assert preset(name).name == name
    assert getattr(presets, name.replace("-", "_")) == preset(name).training
    assert name.replace("-", "_") in dir(presets)


def test_housing_is_complete() -> None:
    training = preset("housing").training(seed=3)
    assert (training.steps, training.learning_rate, training.noise_multiplier) == (250, 0.1, 4.0)
    assert training.batches == FixedBatches(batch_size=400, seed=3)
    assert training.initialisation == FixedInitialisation(seed=3)
    assert sum(p.numel() for p in training.build_model().parameters()) == 68
    losses = training.loss(torch.zeros(5, 2), torch.tensor([0, 1, 0, 1, 1]))
    np.testing.assert_allclose(losses, np.log(2) * np.ones(5), rtol=1e-6)


@pytest.mark.parametrize(("name", "parameters"), [("convnet", 62_006), ("resnet18", 11_173_962)])
def test_networks_on_cifar(cifar: Path, name: str, parameters: int) -> None:
    training = preset(name).training(data_dir=cifar)
    assert sum(p.numel() for p in training.build_model().parameters()) == parameters
    assert training.data.name == "cifar10-train (1 of 5 batches)"
    assert training.batches == FixedBatches(batch_size=128)


def test_the_folder_may_come_from_the_environment(
    cifar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPAUDIT_DATA", str(cifar))
    assert len(preset("convnet").training().data) == 200


def test_the_head_needs_weights_next_to_the_images(cifar: Path) -> None:
    with pytest.raises(DataError, match=r"no AlexNet weights in .*alexnet.safetensors"):
        preset("alexnet-head").training(data_dir=cifar)


@pytest.mark.parametrize("name", ["convnet", "resnet18", "alexnet-head"])
def test_missing_data_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    with pytest.raises(DataError, match=r"no folder for CIFAR-10.*DPAUDIT_DATA"):
        preset(name).training()
    with pytest.raises(DataError, match=r"/no/such/folder"):
        preset(name).training(data_dir="/no/such/folder")


def test_an_unknown_preset() -> None:
    with pytest.raises(InvalidInput, match=r"preset must be one of housing, .*, got 'mnist'"):
        preset("mnist")


def test_naming_a_preset_does_not_import_torch() -> None:
    code = "import sys, dpaudit.presets, dpaudit.configuration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_hyperparameter_can_be_given() -> None:
    given = set(inspect.signature(preset("housing").training).parameters)
    hyperparameters = {field.name for field in dataclasses.fields(presets.Preset)}
    named = {"batch_size", "learning_rate", "clip_norm", "noise_multiplier", "weight_decay"}
    assert {"steps", "seed", "data_dir"} | (named & hyperparameters) <= given
