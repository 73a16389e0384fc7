"""A data set: features and class labels, checked once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Labelled examples in memory. The arrays are not copied: treat them as read-only.

    See also: `dpaudit.data.california_housing`, `dpaudit.data.cifar10`.

    Arguments:
        features: Shape (N, …), finite. Kept as float32; an int64 array stays int64, for token
            numbers that go into an embedding.
        targets: The class of each example, shape (N,), from 0 to ``classes - 1``; int64.
        classes: Number of classes, at least 2.
        name: A short name for tables and the store.

    Example:
        >>> data = Examples(features=[[0.5], [1.5], [-2.0]], targets=[0, 1, 1], classes=2)
        >>> data
        Examples('custom', 3 examples of shape (1,), 2 classes)
        >>> data.take([2]).features
        array([[-2.]], dtype=float32)
    """

    features: NDArray[Any]
    targets: NDArray[np.int64]
    classes: int
    name: str = "custom"

    def __post_init__(self) -> None:
        _validate.integer("classes", self.classes, at_least=2)
        features, targets = _features(self.features), _targets(self.targets, self.classes)
        if len(features) != len(targets):
            raise InvalidInput(
                f"features and targets must have one length, got {len(features)} and {len(targets)}"
            )
        if not len(targets):
            raise InvalidInput("features and targets must hold at least one example, got none")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "classes", int(self.classes))

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        size = f"{len(self)} examples of shape {self.features.shape[1:]}"
        return f"Examples({self.name!r}, {size}, {self.classes} classes)"

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the values in a store; the name has no influence."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self.features, self.targets):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.data)
        digest.update(str(self.classes).encode())
        return digest.hexdigest()

    def take(self, indices: ArrayLike) -> Examples:
        """The examples at ``indices``, in that order."""
        chosen = np.asarray(indices)
        return Examples(
            features=self.features[chosen],
            targets=self.targets[chosen],
            classes=self.classes,
            name=self.name,
        )


def _features(given: ArrayLike) -> NDArray[Any]:
    array = np.asarray(given)
    if array.dtype == np.int64 and isinstance(given, np.ndarray):
        features: NDArray[Any] = np.ascontiguousarray(array)
    else:
        try:
            with np.errstate(over="ignore"):  # too large for float32: reported as infinite below
                features = np.ascontiguousarray(array, dtype=np.float32)
        except (TypeError, ValueError):
            raise InvalidInput(f"features must be numbers, got {array.dtype} values") from None
    if array.ndim == 0:
        raise InvalidInput("features must have an axis of examples, got a single number")
    # Both extremes are finite only if all values are; finding them needs no extra memory.
    if features.size and not np.isfinite([features.min(), features.max()]).all():
        bad = ~np.isfinite(features.reshape(len(features), -1)).all(axis=1)
        first = int(np.argmax(bad))
        kind = "NaN" if np.isnan(features[first]).any() else "infinite values"
        raise InvalidInput(
            f"features must be finite (in float32): {int(bad.sum())} of {len(features)} examples "
            f"are not, the first is example {first} with {kind}; remove or impute them"
        )
    return features


def _targets(given: ArrayLike, classes: int) -> NDArray[np.int64]:
    array = np.asarray(given)
    if array.ndim != 1:
        raise InvalidInput(f"targets must have one dimension, got shape {array.shape}")
    if not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_ or not array.size):
        raise InvalidInput(f"targets must be whole numbers, got {array.dtype} values")
    targets = np.ascontiguousarray(array, dtype=np.int64)
    outside = np.flatnonzero((targets < 0) | (targets >= classes))
    if len(outside):
        raise InvalidInput(
            f"targets must be in 0..{classes - 1} for {classes} classes: {len(outside)} of "
            f"{len(targets)} are not, the first is {targets[outside[0]]} at example {outside[0]}"
        )
    return targets
