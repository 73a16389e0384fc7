"""CIFAR-10 for presets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.presets.base import DataDir

if TYPE_CHECKING:
    from dpaudit.data import Examples


def read_cifar10(data_dir: DataDir) -> Examples:
    """The training images of CIFAR-10, normalised."""
    from dpaudit.data import cifar10

    return cifar10(data_dir)
