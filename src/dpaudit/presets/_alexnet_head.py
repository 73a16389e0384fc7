"""Fine-tuning: a linear head on frozen AlexNet features of CIFAR-10.

``alexnet-head`` replaces AlexNet's whole classifier. ``alexnet-last-layer`` replaces its last layer
only, as the paper does, and needs weights that include the classifier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from dpaudit._torch import torch
from dpaudit.data import Examples, cifar10
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.errors import DataError
from dpaudit.presets.base import Preset


def alexnet_features_of(
    data_dir: DataDir, *, examples: int = 0, hidden_layers: bool = False
) -> Examples:
    """Frozen AlexNet features of CIFAR-10. Two cores compute about a hundred images per second.

    Arguments:
        data_dir: Folder of CIFAR-10 and of the weights.
        examples: Number of images, from the first; 0 for all.
        hidden_layers: Whether to apply the hidden layers of AlexNet's classifier, too.
    """
    from dpaudit.models import alexnet_features

    weights = find_alexnet(data_dir)
    images = cifar10(data_dir, normalise=False)
    if examples:
        images = images.take(range(min(examples, len(images))))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return alexnet_features(images, weights, device=device, hidden_layers=hidden_layers)


def find_alexnet(data_dir: DataDir) -> Path:
    """The file with AlexNet's weights in the data folder."""
    root = data_folder(data_dir)
    if root is None:
        raise DataError(
            "no folder for CIFAR-10 and AlexNet's weights: give data_dir, or set the environment "
            "variable DPAUDIT_DATA"
        )
    endings = (".safetensors", ".pth", ".pt")
    found = sorted(path for path in root.glob("alexnet*") if path.suffix in endings)
    if not found:
        raise DataError(
            f"no AlexNet weights in {root}; put torchvision's weights there, in a file such as "
            "alexnet.safetensors or alexnet.pth"
        )
    return found[0]


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import linear_head

    return functools.partial(linear_head, data.features.shape[1], data.classes or 0)


ALEXNET_HEAD = Preset(
    name="alexnet-head",
    summary="linear head on frozen AlexNet features of CIFAR-10",
    read=alexnet_features_of,
    model_for=_model,
)

ALEXNET_LAST_LAYER = Preset(
    name="alexnet-last-layer",
    summary="last layer of a frozen AlexNet on CIFAR-10",
    read=functools.partial(alexnet_features_of, hidden_layers=True),
    model_for=_model,
)
