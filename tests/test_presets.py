"""The paper's trainings: their hyperparameters, and data that is not there."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpaudit.errors import DataError, InvalidInput
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import FixedInitialisation
from dpaudit.presets import INSERTIONS, PRESETS, preset

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
    table = {p.name: (p.batch_size, p.learning_rate, p.clip_norm) for p in PRESETS.values()}
    assert table == {
        "housing": (400, 0.1, 1.0),
        "convnet": (128, 0.01, 1.0),
        "resnet18": (128, 0.01, 1.0),
        "alexnet-head": (128, 0.01, 1.0),
    }
    assert all(p.noise_multiplier == 4.0 for p in PRESETS.values())
    assert INSERTIONS == 250


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


def test_the_head_needs_weights_beside_the_images(cifar: Path) -> None:
    with pytest.raises(DataError, match=r"no AlexNet weights in .*alexnet.safetensors"):
        preset("alexnet-head").training(data_dir=cifar)


@pytest.mark.parametrize("name", ["convnet", "resnet18", "alexnet-head"])
def test_data_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    with pytest.raises(DataError, match=r"no folder for CIFAR-10.*DPAUDIT_DATA"):
        preset(name).training()
    with pytest.raises(DataError, match=r"/no/such/folder"):
        preset(name).training(data_dir="/no/such/folder")


def test_an_unknown_preset() -> None:
    with pytest.raises(InvalidInput, match=r"preset must be one of housing, .*, got 'mnist'"):
        preset("mnist")


def test_a_training_can_be_sent_to_another_process() -> None:
    """Workers are handed the game by pickle: nothing in a preset may be a lambda."""
    import pickle

    training = preset("housing").training()
    again = pickle.loads(pickle.dumps(training))
    assert again.data.fingerprint == training.data.fingerprint


def test_naming_a_preset_costs_no_torch() -> None:
    code = "import sys, dpaudit.presets, dpaudit.configuration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_hyperparameter_can_be_given() -> None:
    given = inspect.signature(preset("housing").training).parameters
    assert set(given) == {
        "steps",
        "batch_size",
        "learning_rate",
        "clip_norm",
        "noise_multiplier",
        "seed",
        "data_dir",
    }
