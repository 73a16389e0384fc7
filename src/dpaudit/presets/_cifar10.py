"""Networks on CIFAR-10: ConvNet and ResNet18 of the paper, WRN-16-4 of De et al. (arXiv
2204.13650), and a small vision transformer.
"""

from __future__ import annotations

from dpaudit.data import Examples, cifar10
from dpaudit.data.folder import DataDir
from dpaudit.presets.base import Preset, model_named


def read_cifar10(data_dir: DataDir) -> Examples:
    """The training images of CIFAR-10, normalised."""
    return cifar10(data_dir)


CONVNET = Preset(
    name="convnet",
    summary="ConvNet on CIFAR-10",
    read=read_cifar10,
    model_for=model_named("convnet"),
)
RESNET18 = Preset(
    name="resnet18",
    summary="ResNet18 with GroupNorm on CIFAR-10",
    read=read_cifar10,
    model_for=model_named("resnet18"),
)
VIT_TINY = Preset(
    name="vit-tiny",
    summary="ViT-tiny on CIFAR-10",
    read=read_cifar10,
    model_for=model_named("vit_tiny"),
    adversary="random-dimension",
)
WRN_16_4 = Preset(
    name="wrn-16-4",
    summary="WRN-16-4 with GroupNorm on CIFAR-10",
    read=read_cifar10,
    model_for=model_named("wide_resnet"),
    adversary="random-dimension",
)
