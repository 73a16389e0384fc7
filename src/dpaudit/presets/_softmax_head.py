"""A softmax head on frozen ReLU features of California Housing, whose clipping is never active.

Feature vectors have norm at most 1 and C is the square root of 2, which no gradient exceeds. The
updates are non-expansive. The last features are dead: no training example activates them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from dpaudit._torch import torch
from dpaudit.data import Examples, california_housing
from dpaudit.data.folder import DataDir
from dpaudit.data.housing import california_housing_columns
from dpaudit.mechanisms.smoothness import SoftmaxHead
from dpaudit.presets.base import Preset

_UNITS, _DEAD, _CLASSES = 64, 16, 10


def _read(data_dir: DataDir) -> Examples:
    """A fixed random ReLU layer of the standardised columns; the class is the decile of value."""
    inputs = california_housing().features.astype(float)
    random = np.random.default_rng(0)
    hidden = inputs @ random.standard_normal((inputs.shape[1], _UNITS))
    # A unit fires for half of the examples; a dead one has its threshold at the largest input.
    threshold = np.median(hidden, axis=0)
    threshold[-_DEAD:] = hidden[:, -_DEAD:].max(axis=0)
    features = np.maximum(hidden - threshold, 0.0)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    features /= np.maximum(norms, 1.0) * (1 + 1e-6)
    value = california_housing_columns()["MedHouseVal"]
    borders = np.quantile(value, np.arange(1, _CLASSES) / _CLASSES)
    return Examples(
        features=features,
        targets=np.searchsorted(borders, value),
        classes=_CLASSES,
        name="california-housing-features",
    )


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import linear_from_zero

    return functools.partial(linear_from_zero, data.features.shape[1], _CLASSES)


SOFTMAX_HEAD = Preset(
    name="softmax-head",
    summary="softmax head on frozen ReLU features of California Housing",
    needs_folder=False,
    read=_read,
    model_for=_model,
    batch_size=128,
    learning_rate=0.02,
    clip_norm=math.sqrt(2),
    smoothness=SoftmaxHead(),
    adversary="rare-feature",
)
