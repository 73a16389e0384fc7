"""A data set: features and targets, checked once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Integers
from dpaudit.errors import InvalidInput


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Labelled examples in memory. The arrays are not copied: treat them as read-only.

    See also: `dpaudit.data.california_housing`, `dpaudit.data.cifar10`.

    Arguments:
        features: Shape (N, …), finite. Kept as float32; an int64 array stays int64, for token
            numbers that go into an embedding.
        targets: With ``classes``: whole numbers from 0 to ``classes - 1`` of shape (N,) for
            classification, or (N, …) for several labels or the tokens of a sequence; int64.
            Without: real numbers of shape (N, …) for regression, kept as float32. `None` for
            training without targets; the loss then gets a tensor of shape (batch, 0).
        classes: Number of classes or of different tokens, at least 2; `None` for regression and
            for data without targets.
        name: A short name for tables and the store.

    Example:
        >>> data = Examples(features=[[0.5], [1.5], [-2.0]], targets=[0, 1, 1], classes=2)
        >>> data
        Examples('custom', 3 examples of shape (1,), 2 classes)
        >>> data.take([2]).features
        array([[-2.]], dtype=float32)
        >>> Examples(features=[[0.5], [1.5]], targets=[[1.0, 2.0], [3.0, 4.0]])
        Examples('custom', 2 examples of shape (1,), real targets of shape (2,))
    """

    features: NDArray[Any]
    targets: NDArray[Any] = None  # type: ignore[assignment]
    classes: int | None = None
    name: str = "custom"

    def __post_init__(self) -> None:
        features, targets = _array("features", self.features), self.targets
        if features.dtype == np.int64 and isinstance(self.features, np.ndarray):
            features = np.ascontiguousarray(features)
        else:
            features = _floats("features", features)
        if self.classes is not None:
            object.__setattr__(
                self, "classes", _validate.integer("classes", self.classes, at_least=2)
            )
            targets = _labels(targets, self.classes)
        elif targets is None:
            targets = np.zeros((len(features), 0), dtype=np.float32)
        else:
            targets = _floats("targets", targets)
        if len(features) != len(targets):
            raise InvalidInput(
                f"features and targets must have one length, got {len(features)} and {len(targets)}"
            )
        if not len(targets):
            raise InvalidInput("features and targets must hold at least one example, got none")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)

    @classmethod
    def of(cls, data: object) -> Examples:
        """The data as `Examples`, from a pair of features and targets or a ``TensorDataset``.

        Whole numbers as targets are classes, from 0 to the largest; real numbers are regression.

        Example:
            >>> Examples.of(([[0.5], [1.5], [-2.0]], [0, 2, 1]))
            Examples('custom', 3 examples of shape (1,), 3 classes)
        """
        if isinstance(data, cls):
            return data
        pair = getattr(data, "tensors", data)  # of a torch.utils.data.TensorDataset
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidInput(
                "data must be dpaudit.data.Examples, a pair (features, targets), or a TensorDataset"
                f" of two tensors, got {type(data).__name__}; use "
                "Examples(features=..., targets=..., classes=...)"
            )
        features, targets = map(_without_torch, pair)
        labels = _array("targets", targets)
        whole = labels.size and np.issubdtype(labels.dtype, np.integer)
        classes = max(2, int(labels.max()) + 1) if whole else None
        return cls(features=features, targets=targets, classes=classes)

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        size = f"{len(self)} examples of shape {self.features.shape[1:]}"
        return f"Examples({self.name!r}, {size}, {self._target_words()})"

    def _target_words(self) -> str:
        shape = self.targets.shape[1:]
        if self.classes is None:
            return "no targets" if shape == (0,) else f"real targets of shape {shape}"
        return f"{self.classes} classes" + (f" in targets of shape {shape}" if shape else "")

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


def _without_torch(values: Any) -> Any:
    """A tensor as a numpy array, wherever it lies; anything else unchanged."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def _array(name: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise InvalidInput(f"{name} must be a table with rows of one length: {error}") from None


def _floats(name: str, given: ArrayLike) -> NDArray[np.float32]:
    """Finite numbers in float32."""
    array = _array(name, given)
    if array.ndim == 0:
        raise InvalidInput(f"{name} must have an axis of examples, got a single number")
    try:
        with np.errstate(over="ignore"):  # too large for float32: infinite, and reported below
            values = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, got {array.dtype} values") from None
    # All values are finite if both extremes are, and finding those takes no extra memory.
    if values.size and not np.isfinite([values.min(), values.max()]).all():
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        first = int(np.argmax(bad))
        kind = "NaN" if np.isnan(values[first]).any() else "infinite values"
        raise InvalidInput(
            f"{name} must be finite (in float32): {int(bad.sum())} of {len(values)} examples "
            f"are not, the first is example {first} with {kind}; remove or impute them"
        )
    return values


def _labels(given: ArrayLike, classes: int) -> Integers:
    array = _array("targets", given)
    if array.ndim == 0:
        raise InvalidInput(f"targets must have an axis of examples, got {given!r}")
    if not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_ or not array.size):
        raise InvalidInput(
            f"targets must be whole numbers for {classes} classes, got {array.dtype} values; "
            "leave classes out for regression"
        )
    labels = np.ascontiguousarray(array, dtype=np.int64)
    outside = np.argwhere((labels < 0) | (labels >= classes))
    if len(outside):
        raise InvalidInput(
            f"targets must be in 0..{classes - 1} for {classes} classes: {len(outside)} of "
            f"{labels.size} are not, the first is {labels[tuple(outside[0])]} at example "
            f"{outside[0][0]}"
        )
    return labels
