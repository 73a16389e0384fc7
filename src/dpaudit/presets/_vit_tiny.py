"""ViT-tiny on CIFAR-10."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpaudit.presets._cifar10 import read_cifar10
from dpaudit.presets.base import Preset

if TYPE_CHECKING:
    import torch

    from dpaudit.data import Examples


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import vit_tiny

    return vit_tiny


VIT_TINY = Preset(
    name="vit-tiny",
    summary="ViT-tiny on CIFAR-10",
    read=read_cifar10,
    model_for=_model,
    adversary="random-dimension",
)
