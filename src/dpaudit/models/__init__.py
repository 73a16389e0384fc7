"""Functions that build the networks of the presets as plain `torch.nn.Module`s."""

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
