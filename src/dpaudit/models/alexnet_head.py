"""Fine-tuning: a linear head on the frozen convolutions of an AlexNet trained on ImageNet.

The convolutions never change, so their outputs are computed once and form a new data set. Only the
head is trained with DP-SGD and audited.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dpaudit import _validate
from dpaudit.data.examples import Examples
from dpaudit.errors import DataError, InvalidInput, MissingExtra

# The normalisation with which torchvision's AlexNet was trained.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# torchvision's key -> (shape of the weight, stride, padding); then the keys followed by pooling.
_CONVOLUTIONS = {
    "features.0": ((64, 3, 11, 11), 4, 2),
    "features.3": ((192, 64, 5, 5), 1, 2),
    "features.6": ((384, 192, 3, 3), 1, 1),
    "features.8": ((256, 384, 3, 3), 1, 1),
    "features.10": ((256, 256, 3, 3), 1, 1),
}
_POOLED = ("features.0", "features.3", "features.10")

# The hidden layers of the classifier: torchvision's key -> shape of the weight.
_HIDDEN = {"classifier.1": (4096, 9216), "classifier.4": (4096, 4096)}


def linear_head(features: int, classes: int) -> nn.Module:
    """One linear layer with bias: ``(features + 1) * classes`` parameters.

    See also: `alexnet_features`, which computes 2,304 features of an image.

    Example:
        >>> sum(p.numel() for p in linear_head(2304, 10).parameters())
        23050
    """
    _validate.integer("features", features, at_least=1)
    _validate.integer("classes", classes, at_least=2)
    return nn.Linear(features, classes)


def alexnet_features(
    images: Examples,
    weights_path: str | os.PathLike[str],
    *,
    image_size: int = 128,
    batch_size: int = 256,
    device: str = "cpu",
    hidden_layers: bool = False,
) -> Examples:
    """The features of a frozen AlexNet, as a data set for `linear_head`.

    Images are resized to ``image_size`` pixels per side (bilinear) and normalised as in AlexNet's
    training. At 128 pixels the fifth convolution, after ReLU and pooling, gives 256 x 3 x 3 = 2,304
    numbers per image. With the hidden layers of the classifier there are 4,096 numbers, the inputs
    of AlexNet's last layer, which is the layer that the paper trains.

    See also: `dpaudit.data.cifar10` with ``normalise=False``.

    Paper: Krizhevsky (arXiv 1404.5997), in torchvision's form; as a frozen feature extractor in
    Cebere, Bellet, Papernot (ICLR 2025), Section 5.2 and appendix.

    Arguments:
        images: Colour images with values from 0 to 1, shape (N, 3, height, width).
        weights_path: A ``.safetensors`` file or a torch file with torchvision's names
            (``features.0.weight``, …). Other tensors in it are ignored.
        image_size: Pixels per side of the resized images, at least 63.
        batch_size: Number of images computed at once; it limits the memory.
        device: The torch device for the computation.
        hidden_layers: Whether to apply the two hidden layers of the classifier, too.

    Example:
        >>> images = cifar10("~/data", normalise=False)  # doctest: +SKIP
        >>> alexnet_features(images, "~/data/alexnet.safetensors")  # doctest: +SKIP
        Examples('cifar10-train alexnet-128', 50000 examples of shape (2304,), 10 classes)
    """
    _validate.integer("image_size", image_size, at_least=63, remedy="smaller images vanish")
    _validate.integer("batch_size", batch_size, at_least=1)
    _check_images(images)
    weights = _load_weights(Path(weights_path).expanduser(), device, hidden_layers)
    mean = torch.tensor(_IMAGENET_MEAN, device=device).view(3, 1, 1)
    std = torch.tensor(_IMAGENET_STD, device=device).view(3, 1, 1)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), batch_size):
            part = torch.tensor(images.features[start : start + batch_size], device=device)
            part = functional.interpolate(
                part, size=(image_size, image_size), mode="bilinear", align_corners=False
            )
            part = _convolve((part - mean) / std, weights)
            part = _classify(part, weights) if hidden_layers else part.flatten(1)
            parts.append(part.cpu().numpy())
    return Examples(
        features=np.concatenate(parts),
        targets=images.targets,
        classes=images.classes,
        name=f"{images.name} alexnet-{image_size}{'-hidden' if hidden_layers else ''}",
    )


def _convolve(images: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    for key, (_, stride, padding) in _CONVOLUTIONS.items():
        images = functional.conv2d(
            images, weights[f"{key}.weight"], weights[f"{key}.bias"], stride, padding
        ).relu()
        if key in _POOLED:
            images = functional.max_pool2d(images, kernel_size=3, stride=2)
    return images


def _classify(features: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    values = functional.adaptive_avg_pool2d(features, (6, 6)).flatten(1)
    for key in _HIDDEN:
        values = functional.linear(values, weights[f"{key}.weight"], weights[f"{key}.bias"]).relu()
    return values


def _check_images(images: Examples) -> None:
    if images.features.ndim != 4 or images.features.shape[1] != 3:
        raise InvalidInput(
            f"images must have shape (N, 3, height, width), got {images.features.shape}"
        )
    low, high = float(images.features.min()), float(images.features.max())
    if low < 0 or high > 1:
        raise InvalidInput(
            f"images must have values from 0 to 1, got {low:g} to {high:g}; "
            "read CIFAR-10 with cifar10(normalise=False)"
        )


def _load_weights(path: Path, device: str, hidden_layers: bool) -> dict[str, torch.Tensor]:
    """The tensors of the layers that are used, after a check of their shapes."""
    if not path.is_file():
        raise DataError(f"no AlexNet weights at {path}; give a .safetensors or a torch file")
    tensors = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    weights = {}
    shapes: dict[str, tuple[int, ...]] = {key: part[0] for key, part in _CONVOLUTIONS.items()}
    for key, shape in {**shapes, **(_HIDDEN if hidden_layers else {})}.items():
        for name, wanted in ((f"{key}.weight", shape), (f"{key}.bias", shape[:1])):
            tensor = tensors.get(name)
            if not isinstance(tensor, torch.Tensor):
                there = ", ".join(sorted(map(str, tensors))[:4]) or "nothing"
                raise DataError(
                    f"{path} has no {name}; expected torchvision's AlexNet names, found {there}, …"
                )
            if tuple(tensor.shape) != wanted:
                raise DataError(f"{name} in {path} has shape {tuple(tensor.shape)}, not {wanted}")
            if not tensor.isfinite().all():
                raise DataError(f"{name} in {path} has values that are not finite")
            weights[name] = tensor.detach().to(device=device, dtype=torch.float32)
    return weights


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise MissingExtra("reading .safetensors files", "all") from None
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a whole .safetensors file: {error}") from None


def _read_torch(path: Path) -> dict[str, Any]:
    try:
        # weights_only: a torch file is a pickle, which could otherwise run code.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or ["it is empty"])[0]
        raise DataError(f"{path} is not a torch file of tensors: {reason}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a dictionary of tensors")
    return content
