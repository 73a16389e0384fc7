"""Canaries for a training that dpaudit does not run itself: crafted gradients, and data points.

A crafted gradient is inserted like any example: `CraftedCanary.rows` are the gradients *before*
clipping. They are longer than the clip norm, so that missing clipping shows. A training that cannot
take further rows adds `CraftedCanary.clipped_sum`, what correct clipping leaves of them. The score
of a canary is how far the parameters moved against its gradient.

- `GradientCanary`: along axes, one canary or thousands; one in every tensor by ``per_tensor``.
- `DirectionCanary`: in random directions, which also show clipping by another norm.
- `hard_example`, `rare_feature`: data points, where gradients cannot be touched.

Only numpy is used: the training may use torch, JAX, TensorFlow or another language.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Array, as_array, numbers
from dpaudit.errors import InvalidInput

AS_LARGE_AS = 10.0
"""The norm of a canary's gradient before clipping, in units of the clip norm."""


class CraftedCanary(abc.ABC):
    """Crafted gradients, one for each canary, all longer than the clip norm.

    A training inserts a canary like any example: `rows` are the gradients before clipping. A
    training that cannot take further rows adds `clipped_sum` instead.
    """

    clip_norm: float
    norm: float
    names: tuple[str, ...]
    records: int
    unit: str

    if TYPE_CHECKING:  # a field of one subclass, a property of the other

        @property
        def parameters(self) -> int:
            """Length of the flat parameter vector."""

    @classmethod
    def draw(
        cls,
        parameters: int,
        *,
        clip_norm: float,
        count: int = 1,
        seed: int = 0,
        norm: float | None = None,
        records: int = 1,
        unit: str = "record",
    ) -> Self:
        """Draw ``count`` orthogonal directions; ``norm`` is ten times the clip norm by default.

        A user with several records enters as a whole: ``records=4, unit="user"`` makes four equal
        rows of each canary, each of which a training clips by itself.
        """
        random, norms = _drawing(parameters, count, clip_norm, norm, seed)
        drawn = cls.drawn(int(parameters), count, random) | {"records": records, "unit": unit}
        return cls(**drawn, **norms)

    @classmethod
    def per_tensor(
        cls,
        tensors: Mapping[str, int],
        *,
        clip_norm: float,
        seed: int = 0,
        norm: float | None = None,
    ) -> Self:
        """Draw one canary in every parameter tensor; the canaries have the names of the tensors.

        An audit then finds and names a tensor without noise, or one left out of the clip norm.

        Arguments:
            tensors: Names and sizes of the tensors, in the order of the flat parameter vector, for
                instance ``{name: p.numel() for name, p in model.named_parameters()}``.
            clip_norm: The norm C to which the training claims to clip.
            seed: Random seed of the directions.
            norm: Norm before clipping; ten times the clip norm by default.
        """
        slices = _slices(tensors)
        total = max(where.stop for where in slices.values())
        random, norms = _drawing(total, len(slices), clip_norm, norm, seed)
        return cls(**cls.drawn_in(slices, total, random), **norms)

    @classmethod
    @abc.abstractmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """The fields of ``count`` canaries in a vector of this length, without the norms."""

    @classmethod
    @abc.abstractmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """The fields of one canary in every slice, with their names and without the norms."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of canaries."""

    @abc.abstractmethod
    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The directions of the canaries that these coins select, each of norm 1."""

    @abc.abstractmethod
    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """The sum of these directions, without making the rows: there may be thousands."""

    @abc.abstractmethod
    def along(self, flat: Array) -> Array:
        """The component of a flat vector along the direction of every canary."""

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradients of the inserted canaries before clipping, one row each."""
        rows = self.norm * self.unit_rows(coins_of(inserted, self.count))
        return np.repeat(rows, self.records, axis=0)

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The sum of the inserted canaries after correct clipping, flat."""
        length = self.records * min(self.norm, self.clip_norm)
        return length * self.unit_sum(coins_of(inserted, self.count))

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against each canary's gradient, one score per canary.

        Arguments:
            final: The flat parameters at the end of training.
            initial: The flat parameters at the start, if they are known; this removes noise.
        """
        moved = self._flat("final parameters", final)
        if initial is not None:
            moved = moved - self._flat("initial parameters", initial)
        return -self.along(moved)

    def _check(self) -> None:
        """Refuse norms and names that no canary can have."""
        _validate.positive("clip_norm", self.clip_norm)
        _validate.positive("norm", self.norm)
        _validate.integer("records", self.records, at_least=1)
        _validate.name_of_unit(self.unit)
        if self.records > 1 and self.unit == "record":
            raise InvalidInput(
                f"unit must say what owns the {self.records} records, such as 'user'; got 'record'"
            )
        texts = isinstance(self.names, tuple | list) and all(
            isinstance(name, str) for name in self.names
        )
        different = texts and len(set(self.names)) == len(self.names)
        if not different or len(self.names) not in (0, self.count):
            raise InvalidInput(
                f"names must be a text for each of the {self.count} canaries, all different, or "
                f"none, got {_validate.shown(self.names)}"
            )

    def _flat(self, name: str, values: ArrayLike) -> Array:
        flat = numbers(name, values)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{name} must be flat with one number for each of the {self.parameters} parameters "
                f"that the canary was drawn for, got shape {flat.shape}"
            )
        return flat


def _drawing(
    parameters: int, count: int, clip_norm: float, norm: float | None, seed: int
) -> tuple[np.random.Generator, dict[str, float]]:
    """The random generator, and the checked norms, of canaries that are drawn."""
    parameters = _validate.integer("parameters", parameters, at_least=1)
    count = _validate.integer("count", count, at_least=1)
    if count > parameters:
        raise InvalidInput(
            f"count must be at most the number of parameters ({parameters}), since canaries are "
            f"orthogonal; got {count}"
        )
    clip_norm = _validate.positive("clip_norm", clip_norm)
    norm = _validate.positive("norm", AS_LARGE_AS * clip_norm if norm is None else norm)
    random = np.random.default_rng(_validate.integer("seed", seed))
    return random, {"clip_norm": clip_norm, "norm": norm}


def _slices(tensors: Mapping[str, int]) -> dict[str, slice]:
    """Where each tensor lies in the flat parameter vector."""
    if not isinstance(tensors, Mapping) or not tensors:
        raise InvalidInput(
            "tensors must be a mapping from the name of at least one tensor to its size, got "
            f"{_validate.shown(tensors)}"
        )
    places, start = {}, 0
    for name, size in tensors.items():
        size = _validate.integer(f"size of tensor {name!r}", size, at_least=1)
        places[str(name)] = slice(start, start + size)
        start += size
    return places


def coins_of(inserted: ArrayLike, count: int) -> NDArray[np.bool_]:
    """One boolean for each of ``count`` canaries, from what a training was given."""
    given = np.atleast_1d(as_array("inserted", inserted))
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise InvalidInput(
            f"inserted must be booleans, or 0 and 1, got {_validate.shown(inserted)}"
        )
    coins = given.astype(bool)
    if coins.shape != (count,):
        raise InvalidInput(
            f"inserted must be one boolean for each of the {count} canaries, got shape "
            f"{coins.shape}"
        )
    return coins


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GradientCanary(CraftedCanary):
    r"""One crafted gradient, or many: canary ``i`` points along axis ``dimensions[i]``.

    A training inserts a canary like any example: `rows` are the gradients *before* clipping. They
    are longer than the clip norm :math:`C`, so that missing clipping shows. A training that cannot
    take further rows adds `clipped_sum` instead, the sum of the rows after correct clipping:
    :math:`\sum_i b_i \, C e_{d_i}`.

    See also: `dpaudit.audit`; `dpaudit.trainings.DirectionCanary`, in random directions;
    `dpaudit.adversaries.RandomDimension`, the same idea for a training that dpaudit runs.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), A_GC-R; many at once as in Andrew et al. (ICLR
    2024) and Steinke, Nasr, Jagielski (NeurIPS 2023).

    Arguments:
        parameters: Length of the flat parameter vector.
        dimensions: Index of the parameter of each canary; all distinct.
        clip_norm: The norm C to which the training claims to clip.
        norm: Norm of a canary's gradient before clipping.
        names: The name of each canary, such as that of its tensor. An audit tests canaries with
            names one by one, and names those that refute the claim.
        records: Number of equal records that enter together.
        unit: What owns them: the unit of privacy, which must be that of the claim.

    Example:
        >>> canary = GradientCanary.draw(5, clip_norm=1.0, seed=3)
        >>> canary.gradient
        array([ 0., 0., 0., 0., 10.])
        >>> canary.clipped_sum(True)
        array([0., 0., 0., 0., 1.])
        >>> canary.score([0.1, 0.2, 0.3, 0.4, -2.0])
        array([2.])
    """

    parameters: int
    dimensions: NDArray[np.int64]
    clip_norm: float
    norm: float
    names: tuple[str, ...] = ()
    records: int = 1
    unit: str = "record"

    def __post_init__(self) -> None:
        size = _validate.integer("parameters", self.parameters, at_least=1)
        axes = np.atleast_1d(as_array("dimensions", self.dimensions))
        whole = axes.ndim == 1 and len(axes) > 0 and axes.dtype.kind in "iu"
        if not whole or axes.min() < 0 or axes.max() >= size or len(np.unique(axes)) < len(axes):
            raise InvalidInput(
                f"dimensions must be distinct numbers of parameters, from 0 to {size - 1}, got "
                f"{_validate.shown(self.dimensions)}"
            )
        object.__setattr__(self, "dimensions", axes.astype(np.int64))
        self._check()

    @classmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """Distinct axes."""
        axes = random.choice(parameters, size=count, replace=False)
        return {"parameters": parameters, "dimensions": axes}

    @classmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """One axis in every slice.

        Example:
            >>> canary = GradientCanary.per_tensor({"weight": 12, "bias": 3}, clip_norm=1.0)
            >>> canary.names, canary.count, canary.parameters
            (('weight', 'bias'), 2, 15)
        """
        axes = [random.integers(where.start, where.stop) for where in slices.values()]
        dimensions = np.array(axes, dtype=np.int64)
        return {"parameters": parameters, "dimensions": dimensions, "names": tuple(slices)}

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self.dimensions)

    @property
    def gradient(self) -> Array:
        """The gradient of a single canary before clipping, flat."""
        if self.count != 1:
            raise InvalidInput(
                f"gradient belongs to a single canary, and there are {self.count}; "
                "use rows(inserted), or clipped_sum(inserted)"
            )
        row: Array = self.rows(True)[0]
        return row

    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The axes of the canaries that these coins select."""
        present = self.dimensions[coins]
        rows = np.zeros((len(present), self.parameters))
        rows[np.arange(len(present)), present] = 1.0
        return rows

    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """One at the axes of the canaries that these coins select, zero elsewhere."""
        total = np.zeros(self.parameters)
        total[self.dimensions[coins]] = 1.0
        return total

    def along(self, flat: Array) -> Array:
        """The entries of a flat vector at the canaries' axes."""
        return flat[self.dimensions]


def require_known_clipping(canary: object, through_clipping: bool) -> None:
    """Raise an error if the canary is to be added clipped and its clipped gradient is unknown."""
    if not through_clipping and not isinstance(canary, GradientCanary):
        raise InvalidInput(
            "through_clipping=False needs a GradientCanary, whose clipped gradients are known; "
            f"got {type(canary).__name__}"
        )


EVERYWHERE = "all tensors"
"""Name of the canary that has a share in every tensor."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DirectionCanary(CraftedCanary):
    """Crafted gradients in random directions, with a share in many parameters.

    Clipping by another norm than the Euclidean one (per coordinate, by the largest entry, per
    tensor) treats an axis correctly and such a gradient not.

    See also: `GradientCanary`, along axes, which has the same methods.

    Arguments:
        directions: One direction of norm 1 for each canary, orthogonal to each other.
        clip_norm: The norm C to which the training claims to clip.
        norm: Norm of a canary's gradient before clipping.
        names: The name of each canary; as in `GradientCanary`.

    Example:
        >>> canary = DirectionCanary.draw(400, clip_norm=1.0, count=2)
        >>> canary.score(-canary.clipped_sum([True, False])).round(6)
        array([1., 0.])
    """

    directions: Array
    clip_norm: float
    norm: float
    names: tuple[str, ...] = ()
    records: int = 1
    unit: str = "record"

    def __post_init__(self) -> None:
        rows = numbers("directions", self.directions)
        if rows.ndim != 2 or not rows.size or not np.allclose((rows**2).sum(axis=1), 1, atol=1e-3):
            raise InvalidInput(
                "directions must have one row of norm 1 for each canary, got shape "
                f"{rows.shape}; divide each row by its norm, or use DirectionCanary.draw"
            )
        object.__setattr__(self, "directions", rows)
        self._check()

    @classmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """Orthogonal directions over all parameters."""
        drawn = np.linalg.qr(random.standard_normal((parameters, count)))[0].T
        return {"directions": np.ascontiguousarray(drawn)}

    @classmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """One direction inside every slice, and one with a share in all of them.

        Example:
            >>> DirectionCanary.per_tensor({"weight": 12, "bias": 3}, clip_norm=1.0).names
            ('weight', 'bias', 'all tensors')
        """
        rows = np.zeros((len(slices), parameters))
        for row, where in zip(rows, slices.values(), strict=True):
            row[where] = random.standard_normal(where.stop - where.start)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        names = list(slices)
        if parameters > len(slices) > 1:
            everywhere = random.standard_normal(parameters)
            everywhere -= (rows @ everywhere) @ rows
            rows = np.vstack([rows, everywhere / np.linalg.norm(everywhere)])
            names.append(EVERYWHERE)
        return {"directions": rows, "names": tuple(names)}

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""
        return int(self.directions.shape[1])

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self.directions)

    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The directions of the canaries that these coins select."""
        return self.directions[coins]

    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """The sum of these directions."""
        total: Array = self.directions[coins].sum(axis=0)
        return total

    def along(self, flat: Array) -> Array:
        """The components of a flat vector along the canaries' directions."""
        return self.directions @ flat


# Data points.


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
