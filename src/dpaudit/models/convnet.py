"""The paper's convolutional network, for CIFAR-10."""

from __future__ import annotations

from torch import nn


def convnet() -> nn.Module:
    """Two 5x5 convolutions and three fully connected layers: 62,006 parameters.

    3x32x32 -> 6x28x28 -> pool 6x14x14 -> 16x10x10 -> pool 16x5x5 = 400 -> 120 -> 84 -> 10, with
    ReLU in between.

    See also: `dpaudit.data.cifar10`.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Section 5. The shape is LeNet-5's (LeCun et al.
    1998) with colour and ReLU.

    Example:
        >>> sum(p.numel() for p in convnet().parameters())
        62006
    """
    return nn.Sequential(
        nn.Conv2d(3, 6, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )
