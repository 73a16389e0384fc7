"""ResNet18 for 32x32 images, with GroupNorm, because BatchNorm mixes the examples of a batch."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from dpaudit import _validate
from dpaudit.errors import InvalidInput


@final
class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut: the identity, or a 1x1 convolution for a new shape."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.GroupNorm(groups, channels_out),
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm1(self.conv1(images)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(images))


def resnet18(*, classes: int = 10, groups: int = 32, width: int = 64) -> nn.Module:
    """ResNet18 with a 3x3 stem, no first pooling, and GroupNorm: 11,173,962 parameters.

    GroupNorm has two parameters per channel like BatchNorm, so the number of parameters is that of
    the usual network for any number of groups.

    See also: `dpaudit.data.cifar10`.

    Paper: He, Zhang, Ren, Sun (CVPR 2016), Table 1; stem for 32x32 images as in their Section
    4.2. GroupNorm: Wu and He (ECCV 2018), with their default of 32 groups.

    Arguments:
        classes: Number of outputs of the last layer.
        groups: Number of groups of every normalisation; must divide ``width``.
        width: Number of channels of the first stage; later stages have 2, 4 and 8 times as many.
            Tests use smaller networks.

    Example:
        >>> sum(p.numel() for p in resnet18().parameters())
        11173962
    """
    _validate.integer("classes", classes, at_least=2)
    _validate.integer("groups", groups, at_least=1)
    _validate.integer("width", width, at_least=1)
    if width % groups:
        raise InvalidInput(
            f"groups must divide the width ({width}), got {groups}; "
            f"use a divisor such as {next(g for g in range(groups, 0, -1) if width % g == 0)}"
        )
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.GroupNorm(groups, width), nn.ReLU()]
    stages, channels = [], width
    for stage in range(4):
        out = width * 2**stage
        stages += [
            ResidualBlock(channels, out, stride=1 if stage == 0 else 2, groups=groups),
            ResidualBlock(out, out, stride=1, groups=groups),
        ]
        channels = out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*stem, *stages, *head)
