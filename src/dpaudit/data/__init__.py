"""The paper's data sets, as numpy arrays. Nothing here imports torch."""

from dpaudit.data.cifar10 import cifar10, download_cifar10
from dpaudit.data.examples import Examples
from dpaudit.data.housing import california_housing, california_housing_columns

__all__ = [
    "Examples",
    "california_housing",
    "california_housing_columns",
    "cifar10",
    "download_cifar10",
]
