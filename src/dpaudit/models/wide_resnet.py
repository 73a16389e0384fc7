"""Wide residual networks with GroupNorm, for private training on 32x32 images."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dpaudit import _validate
from dpaudit.errors import InvalidInput


@final
class WideBlock(nn.Module):
    """Two normalised 3x3 convolutions with a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1)
        self.norm2 = nn.GroupNorm(groups, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.conv1(torch.relu(self.norm1(images)))
        inner = self.conv2(torch.relu(self.norm2(inner)))
        total: Tensor = inner + self.shortcut(images)
        return total


def wide_resnet(
    *, depth: int = 16, widen: int = 4, classes: int = 10, groups: int = 16
) -> nn.Module:
    """A wide residual network, by default WRN-16-4: 2,751,146 parameters.

    Paper: Zagoruyko, Komodakis (BMVC 2016); with GroupNorm as in De et al. (arXiv 2204.13650),
    without their weight standardisation.

    Arguments:
        depth: Number of layers, 4 more than a multiple of 6.
        widen: Factor of the number of channels.
        classes: Number of outputs.
        groups: Number of groups of every normalisation; must divide 16.

    Example:
        >>> sum(p.numel() for p in wide_resnet().parameters())
        2751146
    """
    _validate.integer("depth", depth, at_least=10)
    _validate.integer("widen", widen, at_least=1)
    _validate.integer("classes", classes, at_least=2)
    if (depth - 4) % 6:
        raise InvalidInput(f"depth must be 4 more than a multiple of 6, got {depth}; use 16 or 40")
    if groups < 1 or 16 % groups:
        raise InvalidInput(f"groups must divide 16, got {groups}")
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    channels = 16
    for stage, out in enumerate((16 * widen, 32 * widen, 64 * widen)):
        for number in range((depth - 4) // 6):
            stride = 2 if stage and not number else 1
            layers.append(WideBlock(channels, out, stride=stride, groups=groups))
            channels = out
    head = [nn.GroupNorm(groups, channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels, classes))
