"""Logistic regression on California Housing with one-hot cells of a map.

The updates are non-expansive, so that the upper bounds of the hidden state apply with c = 1. Most
cells of the map have no district: a record in one of them has a feature that no other has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from dpaudit._torch import torch
from dpaudit.data import Examples, california_housing
from dpaudit.data.folder import DataDir
from dpaudit.mechanisms.losses import logistic
from dpaudit.mechanisms.smoothness import LinearModel
from dpaudit.presets.base import Preset

_CELLS = 20
_LARGEST_NORM = 4.0


def _read(data_dir: DataDir) -> Examples:
    """Eight standardised columns of norm at most 4, a constant, and the cell of a 20 x 20 map."""
    housing = california_housing()
    dense = housing.features.astype(float)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    dense *= np.minimum(1.0, _LARGEST_NORM / norms)
    place = housing.features[:, -2:]  # latitude and longitude
    low, high = place.min(axis=0), place.max(axis=0)
    cell = np.minimum((place - low) / (high - low) * _CELLS, _CELLS - 1).astype(int)
    one_hot = np.zeros((len(dense), _CELLS**2))
    one_hot[np.arange(len(dense)), cell[:, 0] * _CELLS + cell[:, 1]] = 1.0
    return Examples(
        features=np.concatenate([dense, np.ones((len(dense), 1)), one_hot], axis=1),
        targets=housing.targets,
        classes=2,
        name="california-housing-cells",
    )


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import linear_from_zero

    return functools.partial(linear_from_zero, data.features.shape[1], 1)


LOGISTIC = Preset(
    name="logistic",
    summary="logistic regression on California Housing with map cells",
    needs_folder=False,
    read=_read,
    model_for=_model,
    batch_size=400,
    learning_rate=0.1,
    clip_norm=0.2,
    loss=logistic,
    smoothness=LinearModel(loss="logistic"),
    adversary="rare-feature",
)
