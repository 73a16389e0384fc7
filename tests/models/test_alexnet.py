"""AlexNet's frozen features equal those of torch's layers; files of weights are checked."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dpaudit.data import Examples, cifar10
from dpaudit.errors import DataError, InvalidInput, MissingExtra
from dpaudit.models import alexnet_features, linear_head

SHARED = Path(os.environ.get("DPAUDIT_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = SHARED / "alexnet_features_torchvision.safetensors"


def torchvision_twin() -> nn.Sequential:
    """The layers under ``features`` of torchvision's AlexNet, with its numbering."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
    )


def named(network: nn.Module) -> dict[str, torch.Tensor]:
    return {f"features.{name}": tensor for name, tensor in network.state_dict().items()}


@pytest.fixture(scope="module")
def twin() -> nn.Sequential:
    torch.manual_seed(0)
    return torchvision_twin()


@pytest.fixture(scope="module")
def images() -> Examples:
    draw = np.random.default_rng(0)
    return Examples(
        features=draw.random((5, 3, 32, 32)), targets=[0, 1, 2, 0, 1], classes=3, name="toy"
    )


@pytest.fixture
def weights(twin: nn.Sequential, tmp_path: Path) -> Path:
    path = tmp_path / "alexnet.pth"
    torch.save(named(twin) | {"classifier.6.weight": torch.zeros(2, 2)}, path)
    return path


def test_features_are_those_of_torchvisions_layers(
    twin: nn.Sequential, images: Examples, weights: Path
) -> None:
    data = alexnet_features(images, weights, batch_size=2)
    assert data.features.shape == (5, 2304)
    assert data.targets.tolist() == images.targets.tolist()
    assert (data.classes, data.name) == (3, "toy alexnet-128")
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    large = functional.interpolate(torch.tensor(images.features), size=128, mode="bilinear")
    with torch.no_grad():
        expected = twin((large - mean) / std).flatten(1).numpy()
    np.testing.assert_allclose(data.features, expected, rtol=1e-4, atol=1e-6)
    assert linear_head(2304, 3)(torch.tensor(data.features)).shape == (5, 3)


def test_the_hidden_layers_of_the_classifier_are_torchvisions(
    twin: nn.Sequential, images: Examples, weights: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"classifier\.1\.weight"):
        alexnet_features(images, weights, hidden_layers=True)
    torch.manual_seed(1)
    hidden = {"1": nn.Linear(9216, 4096), "4": nn.Linear(4096, 4096)}
    tensors = named(twin)
    for place, layer in hidden.items():
        tensors |= {f"classifier.{place}.{key}": value for key, value in layer.state_dict().items()}
    torch.save(tensors, tmp_path / "whole.pth")
    few = images.take(range(2))
    found = alexnet_features(few, tmp_path / "whole.pth", hidden_layers=True).features
    plain = torch.from_numpy(alexnet_features(few, weights).features).reshape(2, 256, 3, 3)
    with torch.no_grad():
        values = functional.adaptive_avg_pool2d(plain, (6, 6)).flatten(1)
        expected = hidden["4"](hidden["1"](values).relu()).relu()
    assert found.shape == (2, 4096)
    assert np.allclose(found, expected.numpy(), atol=1e-5)


def test_safetensors_and_torch_files_are_the_same(
    twin: nn.Sequential, images: Examples, weights: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = weights.with_suffix(".safetensors")
    safetensors.save_file(named(twin), path)
    one, two = alexnet_features(images, path), alexnet_features(images, weights)
    assert one.fingerprint == two.fingerprint


def test_the_size_of_images_decides_the_number_of_features(images: Examples, weights: Path) -> None:
    assert alexnet_features(images, weights, image_size=63).features.shape == (5, 256)
    with pytest.raises(InvalidInput, match="image_size must be at least 63, got 62"):
        alexnet_features(images, weights, image_size=62)


def test_images_must_be_colours_from_0_to_1(images: Examples, weights: Path) -> None:
    shifted = Examples(features=images.features - 0.5, targets=images.targets, classes=3)
    with pytest.raises(InvalidInput, match=r"from 0 to 1, got -0\.\d+ to .*normalise=False"):
        alexnet_features(shifted, weights)
    grey = Examples(features=images.features[:, :1], targets=images.targets, classes=3)
    with pytest.raises(InvalidInput, match=r"shape \(N, 3, height, width\), got \(5, 1, 32, 32\)"):
        alexnet_features(grey, weights)


class Mischief:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_weights_that_cannot_be_used(twin: nn.Sequential, images: Examples, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with pytest.raises(DataError, match="no AlexNet weights at"):
        alexnet_features(images, path)
    good = named(twin)
    for content, message in [
        ({k: v for k, v in good.items() if k != "features.8.bias"}, r"has no features\.8\.bias"),
        (
            good | {"features.3.weight": torch.zeros(192, 64, 3, 3)},
            r"features\.3\.weight in .* has shape \(192, 64, 3, 3\), not \(192, 64, 5, 5\)",
        ),
        (good | {"features.0.bias": torch.full((64,), torch.nan)}, "not finite"),
        ({"conv1": torch.zeros(1)}, "torchvision's AlexNet names, found conv1"),
        ([1, 2], "holds a list"),
        ({"x": Mischief(tmp_path / "touched")}, "not a torch file of tensors"),
    ]:
        torch.save(content, path)
        with pytest.raises(DataError, match=message) as error:
            alexnet_features(images, path)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 cut off"])
def test_files_that_hold_no_weights(
    images: Examples, tmp_path: Path, ending: str, content: bytes
) -> None:
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"weights.{ending}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"is not a (torch|whole)"):
        alexnet_features(images, path)


def test_without_safetensors_the_remedy_is_named(
    images: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = builtins.__import__

    def without(name: str, *rest: Any, **named_arguments: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return honest(name, *rest, **named_arguments)

    (tmp_path / "weights.safetensors").write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="safetensors"):
        alexnet_features(images, tmp_path / "weights.safetensors")


@pytest.mark.skipif(not REAL.is_file(), reason="the trained weights are not at hand")
def test_trained_features_separate_classes() -> None:
    pytest.importorskip("safetensors")
    images = cifar10(SHARED, normalise=False).take(np.arange(600))
    data = alexnet_features(images, REAL)
    assert data.features.shape == (600, 2304)
    train, test = slice(0, 400), slice(400, 600)
    unit = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    centres = np.stack([unit[train][data.targets[train] == c].mean(axis=0) for c in range(10)])
    guesses = (unit[test] @ centres.T).argmax(axis=1)
    assert (guesses == data.targets[test]).mean() > 0.45  # chance is 0.1
