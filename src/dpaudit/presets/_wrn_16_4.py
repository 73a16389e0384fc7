"""WRN-16-4 with GroupNorm on CIFAR-10, the network of De et al. (arXiv 2204.13650)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpaudit.presets._cifar10 import read_cifar10
from dpaudit.presets.base import Preset

if TYPE_CHECKING:
    import torch

    from dpaudit.data import Examples


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import wide_resnet

    return wide_resnet


WRN_16_4 = Preset(
    name="wrn-16-4",
    summary="WRN-16-4 with GroupNorm on CIFAR-10",
    read=read_cifar10,
    model_for=_model,
    adversary="random-dimension",
)
