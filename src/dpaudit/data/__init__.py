"""The paper's data sets, as numpy arrays. Nothing here imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "cifar10": "cifar10 download_cifar10",
            "examples": "Examples",
            "housing": "california_housing california_housing_columns",
        },
    )
