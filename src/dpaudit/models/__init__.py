"""Functions that build the networks of the presets as plain `torch.nn.Module`s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.models.alexnet import alexnet_features
    from dpaudit.models.networks import (
        convnet,
        drawn_by,
        fcnn,
        gpt,
        linear_from_zero,
        linear_head,
        resnet18,
        vit_tiny,
        wide_resnet,
    )

__all__ = [
    "alexnet_features",
    "convnet",
    "drawn_by",
    "fcnn",
    "gpt",
    "linear_from_zero",
    "linear_head",
    "resnet18",
    "vit_tiny",
    "wide_resnet",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "alexnet": "alexnet_features",
            "networks": "convnet drawn_by fcnn gpt linear_from_zero linear_head resnet18 vit_tiny "
            "wide_resnet",
        },
    )
