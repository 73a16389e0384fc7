"""Functions that build the networks of the presets as plain `torch.nn.Module`s."""

from dpaudit.models.alexnet_head import alexnet_features, linear_head
from dpaudit.models.convnet import convnet
from dpaudit.models.fcnn import fcnn
from dpaudit.models.gpt import gpt
from dpaudit.models.resnet18 import resnet18
from dpaudit.models.vit import vit_tiny
from dpaudit.models.wide_resnet import wide_resnet

__all__ = [
    "alexnet_features",
    "convnet",
    "fcnn",
    "gpt",
    "linear_head",
    "resnet18",
    "vit_tiny",
    "wide_resnet",
]
