"""Scores of what a pipeline released, for an audit of two neighbouring data sets.

No canary has a gradient here, so that a score must find by itself what differs:

- `UpdateLength`: how far the parameters moved. It shows noise of another size, as in opacus#571.
- `LearnedScore`: the log-odds of a logistic regression that *pilot runs* train. The runs of the
  audit are others, so that their scores are independent given the pilot, and every test is valid
  whatever the classifier learned.

The features of a result are the logarithms of the norms of its tensors, its distance from the mean
of the pilot, its projection on the difference of the means, and for at most 32 numbers the numbers
themselves, their squares, and which of a few values each has. A pilot of at least 1,000 runs adds
how far each number, and each difference of neighbouring numbers, is above quantiles of the pilot: a
function of these follows any log-likelihood ratio of one number, and of the steps of a sum. If the
results of such a pilot are outcomes that repeat, as those of a vote, the only feature is how much
more often the outcome occurs with the second data set, which orders outcomes best. The weights are
fitted to projections on the direction of the other half of the pilot: on a direction that was
fitted to the same runs, a projection looks better than it is.

The logistic regression is 20 lines on scipy's L-BFGS, with the exact optimum of a convex loss:
scikit-learn would need the same features and penalties, and one more dependency.

Paper: Bichsel, Steffen, Bogunovic, Vechev, DP-Sniper (IEEE S&P 2021), trains a logistic regression
to attack a black box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit

from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidInput
from dpaudit.trainings.scoring import as_array, flat_parameters, named_leaves

FEW = 32
"""Up to so many numbers are features one by one."""

MOST = 1 << 20
"""Of more numbers a fixed random subset is used for distances and projections."""

_FEW_VALUES = 12
_QUANTILES = np.array([0.001, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99, 0.999])
_LEAST_FOR_QUANTILES = 1000
_BEYOND = 20  # runs of the pilot below the lowest and above the highest quantile
_MOST_VALUES = 256  # of a number in outcomes that repeat
_RUNS_EACH = 20  # of the pilot, on average, for each outcome
_AT_ONCE = 1 << 22  # numbers whose features are computed together
_TINY = 1e-300


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class UpdateLength:
    """The length of the update: how far the released parameters are from a start.

    It is larger for the second data set if that one has more noise, as with a smaller divisor.

    Arguments:
        initial: The parameters at the start; zeros by default.

    Example:
        >>> UpdateLength()("record 5 of 5 is added", np.array([3.0, 4.0]))
        5.0
    """

    initial: Array | None = None

    def __call__(self, canary: Any, returned: Any) -> float:
        moved = flat_parameters(returned)
        if self.initial is not None:
            moved = moved - self.initial
        return float(np.linalg.norm(moved))


@final
@dataclass(frozen=True, eq=False)
class Released:
    """The numbers of one result, as far as the features need them.

    Arguments:
        vector: All numbers, or a fixed random subset of them.
        norms: The norm of each tensor.
    """

    vector: Array
    norms: Array

    @classmethod
    def of(cls, returned: Any, initial: Array | None = None) -> Released:
        """Read what a pipeline returned."""
        leaves = [as_array(leaf).ravel() for _, leaf in named_leaves(returned)]
        if not leaves:
            raise InvalidInput(f"there are no numbers in the {type(returned).__name__} returned")
        flat = np.concatenate(leaves)
        if initial is not None:
            sizes = np.cumsum([len(leaf) for leaf in leaves])[:-1]
            leaves = np.split(flat - initial, sizes)
        with np.errstate(over="ignore"):
            norms = np.array([float(np.linalg.norm(leaf)) for leaf in leaves])
        if len(flat) > MOST:
            flat = flat[np.random.default_rng(len(flat)).choice(len(flat), MOST, replace=False)]
        return cls(flat, norms)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedScore:
    """The log-odds that a result comes from the second data set, learned from pilot runs.

    Arguments:
        features: What is computed of a result.
        direction: The difference of the means of both data sets, with length 1.
        shift: Means of the features.
        scale: Their standard deviations.
        weights: The weights of the features, and a constant.
        tensors: Number of arrays in a result.
        initial: The parameters at the start, subtracted from norms.
    """

    features: _Features | _Outcomes
    direction: Array
    shift: Array
    scale: Array
    weights: Array
    tensors: int
    initial: Array | None = None

    def __call__(self, canary: Any, returned: Any) -> float:
        return self.of(Released.of(returned, self.initial))

    def of(self, released: Released) -> float:
        """The score of a result that was read already."""
        shape, own = released.vector.shape, self.direction.shape
        if shape != own or len(released.norms) != self.tensors:
            raise InvalidInput(
                f"the results must have the same shape in all runs, got {shape[0]} numbers in "
                f"{len(released.norms)} arrays, after {own[0]} in {self.tensors} in the pilot"
            )
        return float(self.of_rows(released.vector[None], released.norms[None])[0])

    def of_rows(self, vectors: Array, norms: Array) -> Array:
        """The scores of many results: their numbers and the norms of their arrays, a row each."""
        features = self.features(vectors, norms, self.direction)
        scaled = (features - self.shift) / self.scale
        scores: Array = scaled @ self.weights[:-1] + self.weights[-1]
        return scores

    @classmethod
    def learn(
        cls, results: Sequence[Released], second: Sequence[bool], initial: Array | None = None
    ) -> LearnedScore:
        """Train the score with pilot runs.

        Arguments:
            results: The results of the pilot.
            second: Which of them come from the second data set.
            initial: The parameters at the start of training, if they are known.

        Example:
            >>> random = np.random.default_rng(0)
            >>> labels = np.arange(60) % 2 == 1
            >>> pilot = [Released.of(random.normal(3.0 * label, 1, 2)) for label in labels]
            >>> score = LearnedScore.learn(pilot, labels)
            >>> score(None, np.array([3.0, 3.0])) > score(None, np.array([0.0, 0.0]))
            True
        """
        shapes = {(len(result.vector), len(result.norms)) for result in results}
        if len(shapes) != 1:
            raise InvalidInput(
                "the results must have the same shape in all runs; for a result of varying length "
                "give a score of your own"
            )
        vectors = np.stack([result.vector for result in results])
        return cls.of_pilot(
            vectors, np.stack([result.norms for result in results]), second, initial
        )

    @classmethod
    def of_pilot(
        cls, vectors: Array, norms: Array, second: ArrayLike, initial: Array | None = None
    ) -> LearnedScore:
        """The same from the numbers of all results, and the norms of their arrays, a row each."""
        labels = np.asarray(second, dtype=bool)
        halves = np.arange(len(labels)) // 2 % 2 == 0
        for half in (halves, ~halves):
            if not labels[half].any() or labels[half].all():
                raise InvalidInput(
                    "the pilot must have at least two results of each data set in each half, got "
                    f"{int(labels.sum())} and {int((~labels).sum())}; use more runs"
                )
        features = _Outcomes.of(vectors, labels) or _Features.of(vectors)
        rows = max(1, _AT_ONCE // vectors.shape[1])
        tables = []
        for half in (halves, ~halves):
            other, runs = _direction(vectors[~half], labels[~half]), np.flatnonzero(half)
            for few in np.split(runs, range(rows, len(runs), rows)):
                tables.append(features(vectors[few], norms[few], other))
        table = np.vstack(tables)
        shift, scale = table.mean(axis=0), table.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        table -= shift
        table /= scale
        ordered = np.concatenate([labels[halves], labels[~halves]])
        weights = _logistic(table, ordered, strong=norms.shape[1] + 3)
        return cls(
            features=features,
            direction=_direction(vectors, labels),
            shift=shift,
            scale=scale,
            weights=weights,
            tensors=norms.shape[1],
            initial=initial,
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Outcomes:
    """The feature of outcomes that repeat: the logarithm of how much more often the second has one.

    Arguments:
        values: The values of every number, ascending.
        codes: Every outcome of the pilot as one integer, ascending.
        ratios: The logarithm of its number of runs on the second data set over that on the first.
    """

    values: tuple[Array, ...]
    codes: Integers
    ratios: Array

    @classmethod
    def of(cls, vectors: Array, second: Any) -> _Outcomes | None:
        """The outcomes of a pilot; `None` if it is small or its results hardly repeat."""
        few, runs = vectors[:1000], len(vectors)
        if runs < _LEAST_FOR_QUANTILES or vectors.shape[1] > FEW or not np.isfinite(vectors).all():
            return None
        if any(len(np.unique(column)) > _MOST_VALUES for column in few.T):
            return None
        values = tuple(np.unique(column) for column in vectors.T)
        if sum(math.log2(len(own)) for own in values) > 62:
            return None
        made = cls(values=values, codes=np.zeros(0, dtype=np.int64), ratios=np.zeros(0))
        codes, place = np.unique(made._codes(vectors), return_inverse=True)
        if len(codes) * _RUNS_EACH > runs:
            return None
        counts = [np.bincount(place[own], minlength=len(codes)) for own in (second, ~second)]
        # One more of each, so that an outcome of one data set alone has a finite ratio.
        ratios = np.log((counts[0] + 1) / (counts[1] + 1))
        return cls(values=values, codes=codes, ratios=ratios)

    def _codes(self, vectors: Array) -> Integers:
        """Every row as one integer; -1 where it has a value that the pilot did not have."""
        codes, familiar = np.zeros(len(vectors), dtype=np.int64), np.ones(len(vectors), dtype=bool)
        for column, own in zip(vectors.T, self.values, strict=True):
            place = np.minimum(np.searchsorted(own, column), len(own) - 1)
            familiar &= own[place] == column
            codes = codes * len(own) + place
        return np.where(familiar, codes, -1)

    def __call__(self, vectors: Array, norms: Array, direction: Array) -> Array:
        """The feature of each result; 0 for an outcome that the pilot did not have."""
        codes = self._codes(vectors)
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[place] == codes, self.ratios[place], 0.0)[:, None]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Features:
    """The features of results, and what they take from the pilot.

    Arguments:
        mean: The mean of the results.
        values: The values that single numbers often take, such as flags and categories.
        quantiles: Quantiles of every number and of every difference of neighbours; may be empty.
    """

    mean: Array
    values: tuple[tuple[float, ...], ...]
    quantiles: tuple[Array, ...] = ()

    @classmethod
    def of(cls, vectors: Array) -> _Features:
        """The features that suit the results of a pilot."""
        mean, values = vectors.mean(axis=0), _few_values(vectors)
        without = cls(mean=mean, values=values)
        if not values or len(vectors) < _LEAST_FOR_QUANTILES:
            return without
        own = []
        for column in without._columns(vectors):
            column = column[np.isfinite(column)]
            outside = np.minimum(_QUANTILES, 1 - _QUANTILES) * len(column)
            own.append(
                np.unique(np.quantile(column, _QUANTILES[outside >= _BEYOND]))
                if len(column)
                else column
            )
        return cls(mean=mean, values=values, quantiles=tuple(own))

    def _columns(self, vectors: Array) -> Array:
        """Every number, then the differences of neighbours; NaN for a flag or a category."""
        columns = vectors.T.copy()
        for column, own in zip(columns, self.values, strict=True):
            column[np.isin(column, own)] = np.nan
        return np.vstack([columns, np.diff(columns, axis=0)])

    def __call__(self, vectors: Array, norms: Array, direction: Array) -> Array:
        """One row of features for each result."""
        away = np.nan_to_num(vectors, posinf=1e300, neginf=-1e300) - self.mean
        with np.errstate(over="ignore"):
            norms = np.column_stack(
                [norms, np.linalg.norm(norms, axis=1), np.linalg.norm(away, axis=1)]
            )
        logarithms = np.clip(np.log(norms + _TINY), -700, 700)
        if self.quantiles and vectors.shape[1] == 1:
            # Infinite at one value, and of no use where the features below follow any function.
            logarithms[:] = 0
        parts = [logarithms, (away @ direction)[:, None]]
        if self.values:
            near = np.clip(away, -1e100, 1e100)
            parts += [near, near**2]
            parts += [
                (column[:, None] == np.array(own)).astype(np.float64)
                for column, own in zip(vectors.T, self.values, strict=True)
                if own
            ]
        if self.quantiles:
            parts += [
                np.nan_to_num(np.clip(column[:, None] - own, 0, 1e100))
                for column, own in zip(self._columns(vectors), self.quantiles, strict=True)
                if len(own)
            ]
        return np.hstack(parts)


def _direction(vectors: Array, labels: Any) -> Array:
    """The difference of the means of both data sets, with length 1."""
    moved: Array = vectors[labels].mean(axis=0) - vectors[~labels].mean(axis=0)
    return moved / (float(np.linalg.norm(moved)) or 1.0)


def _few_values(vectors: Array) -> tuple[tuple[float, ...], ...]:
    """For each number the values that it often has in the pilot; empty for many numbers."""
    if vectors.shape[1] > FEW:
        return ()
    few, often = min(_FEW_VALUES, len(vectors) // 4), max(2, len(vectors) // 50)
    chosen = []
    for column in vectors.T:
        values, counts = np.unique(column, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:few]
        chosen.append(tuple(np.sort(values[most[counts[most] >= often]]).tolist()))
    return tuple(chosen)


def _logistic(table: Array, labels: Any, *, strong: int) -> Array:
    """Weights and constant of a logistic regression with a penalty on the weights.

    Arguments:
        table: One row of features for each run.
        labels: Which runs are on the second data set.
        strong: Number of features, in front, with a small penalty; single numbers have a large one.
    """
    sign = np.where(labels, 1.0, -1.0)
    rows = np.column_stack([table, np.ones(len(table))])
    penalty = np.where(np.arange(rows.shape[1]) < strong, 1.0, 10.0)
    penalty[-1] = 0.0

    def loss(weights: Array) -> tuple[float, Array]:
        margin = sign * (rows @ weights)
        value = np.logaddexp(0, -margin).sum() + 0.5 * float(penalty @ weights**2)
        slope = -(rows * (sign * expit(-margin))[:, None]).sum(axis=0) + penalty * weights
        return float(value), slope

    start = np.zeros(rows.shape[1])
    result: Array = minimize(loss, start, jac=True, method="L-BFGS-B").x
    if not all(map(math.isfinite, result)):
        raise InvalidInput("the results of the pilot have numbers that are too large to learn from")
    return result
