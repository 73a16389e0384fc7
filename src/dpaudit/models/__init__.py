"""Functions that build the networks of the presets as plain `torch.nn.Module`s."""

from dpaudit.models.alexnet_head import alexnet_features, linear_head
from dpaudit.models.convnet import convnet
from dpaudit.models.fcnn import fcnn
from dpaudit.models.resnet18 import resnet18

__all__ = ["alexnet_features", "convnet", "fcnn", "linear_head", "resnet18"]
