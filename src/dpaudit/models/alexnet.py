"""Fine-tuning: the features that a frozen AlexNet, trained on ImageNet, computes of images.

The frozen layers never change, so their outputs are computed once and form a new data set. Only a
head is trained with DP-SGD and audited.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit import _validate
from dpaudit.data.examples import Examples
from dpaudit.errors import DataError, InvalidInput, MissingExtra

# The normalisation with which torchvision's AlexNet was trained.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@final
class AlexNet(nn.Module):
    """AlexNet without its last layer; layers are named as in torchvision, whose weights it loads.

    Paper: Krizhevsky (arXiv 1404.5997), in torchvision's form.

    Arguments:
        hidden_layers: Whether to apply the two hidden layers of the classifier.
    """

    def __init__(self, *, hidden_layers: bool) -> None:
        super().__init__()
        relu, pool = nn.ReLU(), nn.MaxPool2d(kernel_size=3, stride=2)
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2), relu, pool),
            *(nn.Conv2d(64, 192, kernel_size=5, padding=2), relu, pool),
            *(nn.Conv2d(192, 384, kernel_size=3, padding=1), relu),
            *(nn.Conv2d(384, 256, kernel_size=3, padding=1), relu),
            *(nn.Conv2d(256, 256, kernel_size=3, padding=1), relu, pool),
        )
        hidden: list[nn.Module] = [
            *(nn.Dropout(), nn.Linear(9216, 4096), relu),
            *(nn.Dropout(), nn.Linear(4096, 4096), relu),
        ]
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6)) if hidden_layers else nn.Identity()
        self.classifier = nn.Sequential(*hidden) if hidden_layers else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        values: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return values


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
    network = _load(Path(weights_path).expanduser(), hidden_layers=hidden_layers).to(device)
    mean = torch.tensor(_IMAGENET_MEAN, device=device).view(3, 1, 1)
    std = torch.tensor(_IMAGENET_STD, device=device).view(3, 1, 1)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), batch_size):
            part = torch.tensor(images.features[start : start + batch_size], device=device)
            part = functional.interpolate(
                part, size=(image_size, image_size), mode="bilinear", align_corners=False
            )
            parts.append(network((part - mean) / std).cpu().numpy())
    return Examples(
        features=np.concatenate(parts),
        targets=images.targets,
        classes=images.classes,
        name=f"{images.name} alexnet-{image_size}{'-hidden' if hidden_layers else ''}",
    )


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


def _load(path: Path, *, hidden_layers: bool) -> AlexNet:
    """The network in evaluation mode with the weights of a file; other tensors are ignored."""
    if not path.is_file():
        raise DataError(f"no AlexNet weights at {path}; give a .safetensors or a torch file")
    tensors = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    with torch.device("meta"):  # without drawing weights that are replaced at once
        network = AlexNet(hidden_layers=hidden_layers)
    weights = {}
    for name, expected in network.state_dict().items():
        tensor = tensors.get(name)
        if not isinstance(tensor, Tensor):
            names = ", ".join(sorted(map(str, tensors))[:4]) or "nothing"
            raise DataError(
                f"{path} has no {name}; expected torchvision's AlexNet names, found {names}, …"
            )
        if tensor.shape != expected.shape:
            raise DataError(
                f"{name} in {path} has shape {tuple(tensor.shape)}, not {tuple(expected.shape)}"
            )
        if not tensor.isfinite().all():
            raise DataError(f"{name} in {path} has values that are not finite")
        weights[name] = tensor.detach().float()
    network.load_state_dict(weights, assign=True)
    return network.eval()


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
