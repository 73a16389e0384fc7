"""Data points as canaries, for a training whose gradients cannot be touched.

A data canary is weaker than a crafted gradient: the training decides what its gradient is. Choose
one whose gradient is long and unlike all others, insert it into every epoch, and return the loss or
the prediction for it as the score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput


def hard_example(features: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Any]:
    """A typical example with the label of another class: its gradient is long and stays long.

    The example is the one nearest to the mean of its class, of the two classes whose means are
    farthest apart. A model that was trained on it predicts the wrong label with a higher
    probability than one that was not.

    See also: `rare_feature`; `dpaudit.Predictions`, the score of a canary that is a data point.

    Arguments:
        features: Training examples, one per row; further axes are flattened for the distances.
        labels: Class of each example.

    Example:
        >>> features = np.array([[0.0, 0.0], [0.2, 0.0], [5.0, 5.0], [5.0, 5.2], [5.0, 5.4]])
        >>> point, label = hard_example(features, [0, 0, 1, 1, 1])
        >>> point, int(label)
        (array([5. , 5.2]), 0)
    """
    given, flat, classes = _examples(features, labels)
    names = np.unique(classes)
    if len(names) < 2:
        raise InvalidInput(f"labels must have at least 2 classes, got {names.tolist()}")
    means = np.stack([flat[classes == name].mean(axis=0) for name in names])
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)
    of, wrong = np.unravel_index(int(apart.argmax()), apart.shape)
    counts = [int((classes == names[place]).sum()) for place in (of, wrong)]
    if counts[1] > counts[0]:  # the label of the rarer class surprises more
        of, wrong = wrong, of
    own = np.flatnonzero(classes == names[of])
    nearest = own[int(np.linalg.norm(flat[own] - means[of], axis=1).argmin())]
    return given[nearest].copy(), names[wrong]


def rare_feature(
    features: ArrayLike, labels: ArrayLike, *, size: float = 10.0
) -> tuple[NDArray[Any], Any]:
    """An example whose only feature is one that the other examples hardly have.

    The feature with the fewest values other than its most frequent one is set to ``size`` times the
    typical norm of an example, and all others to zero. The weights of that feature then depend on
    the canary and on little else. The label is that of the rarest class.

    See also: `hard_example`; `dpaudit.adversaries.RareFeature`, for a training that dpaudit runs.

    Arguments:
        features: Training examples, one per row; further axes are flattened.
        labels: Class of each example.
        size: Norm of the canary, in units of the median norm of the examples.

    Example:
        >>> features = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [3.0, 0.0, 1.0]])
        >>> rare_feature(features, [0, 1, 1], size=4.0)[0].round(2)
        array([0.  , 8.94, 0.  ])
    """
    given, flat, classes = _examples(features, labels)
    size = _validate.positive("size", size)
    used = [len(column) - np.unique(column, return_counts=True)[1].max() for column in flat.T]
    point = np.zeros(flat.shape[1])
    point[int(np.argmin(used))] = size * float(np.median(np.linalg.norm(flat, axis=1)) or 1.0)
    names, counts = np.unique(classes, return_counts=True)
    kind = given.dtype if given.dtype.kind == "f" else np.float64
    return point.reshape(given.shape[1:]).astype(kind), names[int(counts.argmin())]


def _examples(features: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Array, NDArray[Any]]:
    given, classes = np.asarray(features), np.asarray(labels)
    if given.ndim < 2 or not len(given):
        raise InvalidInput(f"features must have one row per example, got shape {given.shape}")
    if classes.shape != (len(given),):
        raise InvalidInput(
            f"labels must be one class for each of the {len(given)} examples, got shape "
            f"{classes.shape}"
        )
    return given, given.reshape(len(given), -1).astype(np.float64), classes
