"""Scores: the only data that statistics receive from training.

A score says how strongly one canary of one run looks inserted. A lower bound reads nothing else of
an audit than this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from numbers import Real
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit._arrays import Array, Integers, as_array
from dpaudit.errors import InvalidInput, InvalidScores, MissingExtra
from dpaudit.scores.copies import refuse_copies

REQUIRED, OPTIONAL = ("score", "inserted"), ("run", "canary")
"""The columns of a table of scores, in files and data frames."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """One row for each (run, canary): its score, and whether that canary was inserted.

    Most bounds read only the order of scores: higher means "inserted", and an infinite score means
    "certainly" (or "certainly not"). A table may lack inserted canaries, or others; bounds that
    need both raise then. The arrays are read-only. A (run, canary) pair that occurs twice is
    refused, and so are copied rows without canary numbers (see `dpaudit.scores.copies`): counting
    a score twice makes a bound too large.

    See also: `dpaudit.scores.read_scores`, `dpaudit.scores.Store`.

    Arguments:
        score: The scores, shape (n,). Infinities are allowed, NaN is not.
        inserted: Whether the canary was in the training, shape (n,): booleans, or 0 and 1.
        run: Number of the training that each row comes from, shape (n,). Rows of the same run are
            not independent. By default every row is a separate run.
        canary: Number of the canary of each row, shape (n,), unique within its run. By default
            the canaries of a run are numbered in the order of its rows.

    Example:
        >>> scores = Scores(score=[0.1, 2.3, -0.4], inserted=[0, 1, 0])
        >>> scores.inserted_scores, scores.runs, scores.clustered
        (array([2.3]), 3, False)
    """

    score: Array
    inserted: NDArray[np.bool_]
    run: Integers = None  # type: ignore[assignment]  # filled in below
    canary: Integers = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        score, inserted = numbers(self.score), labels(self.inserted)
        canaries_numbered = self.canary is not None
        numbered = self.run is not None or canaries_numbered
        run = np.arange(len(score)) if self.run is None else whole("run", self.run)
        if self.canary is not None:
            canary = whole("canary", self.canary)
        else:
            canary = np.zeros_like(run) if self.run is None else _place_within(run)
        store_columns(self, score=score, inserted=inserted, run=run, canary=canary)
        if numbered:  # otherwise every row is a run
            _refuse_repeated_pairs(run, canary)
        if not canaries_numbered and len(np.unique(score)) < len(score):
            refuse_copies(score, inserted)

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        inserted = int(self.inserted.sum())
        return f"Scores({inserted} inserted, {len(self) - inserted} not, {self.runs} runs)"

    @property
    def inserted_scores(self) -> Array:
        """The scores of inserted canaries, in the order of the table."""
        return self.score[self.inserted]

    @property
    def other_scores(self) -> Array:
        """The scores of canaries that were not inserted, in the order of the table."""
        return self.score[~self.inserted]

    @cached_property
    def runs(self) -> int:
        """How many different runs there are."""
        run = self.run
        if (run[1:] < run[:-1]).any():  # audits store runs in order
            run = np.sort(run)
        return int((run[1:] != run[:-1]).sum()) + min(1, len(run))

    @property
    def canaries_per_run(self) -> int:
        """The largest number of canaries in one run; 0 for an empty table."""
        return int(np.unique(self.run, return_counts=True)[1].max(initial=0))

    @property
    def clustered(self) -> bool:
        """Whether some run has more than one canary, so that rows are not independent."""
        return self.runs < len(self.run)

    def where(self, rows: NDArray[np.bool_]) -> Scores:
        """The rows that a boolean mask selects."""
        return Scores(
            score=self.score[rows],
            inserted=self.inserted[rows],
            run=self.run[rows],
            canary=self.canary[rows],
        )

    @classmethod
    def from_samples(cls, inserted: ArrayLike, not_inserted: ArrayLike) -> Scores:
        """Scores from two samples, one run for each number.

        Example:
            >>> len(Scores.from_samples([3.1, 2.7], [0.2, -0.1, 0.4]))
            5
        """
        ones, zeros = numbers(inserted, "inserted"), numbers(not_inserted, "not_inserted")
        labels = np.repeat([True, False], [len(ones), len(zeros)])
        return cls(score=np.concatenate([ones, zeros]), inserted=labels)

    @classmethod
    def from_pandas(cls, frame: Any) -> Scores:
        """Scores from a data frame of pandas, polars or pyarrow.

        Arguments:
            frame: The columns ``score`` and ``inserted``, and perhaps ``run`` and ``canary``; other
                columns are ignored.
        """
        return cls(**columns_of(frame))

    def to_pandas(self) -> Any:
        """The table as a pandas data frame with the columns run, canary, inserted and score."""
        names = ("run", "canary", "inserted", "score")
        return frame_of({name: getattr(self, name) for name in names})

    @classmethod
    def concat(cls, parts: Iterable[Scores]) -> Scores:
        """Several tables as one. The same run number means the same run in all of them.

        Number the runs of different audits differently: a repeated (run, canary) pair is refused.

        Example:
            >>> one = Scores(score=[1.0, 0.0], inserted=[1, 0], run=[0, 1])
            >>> two = Scores(score=[2.0, 0.5], inserted=[1, 0], run=[2, 3])
            >>> Scores.concat([one, two])
            Scores(2 inserted, 2 not, 4 runs)
        """
        tables = list(parts)
        if not tables:
            return cls(score=np.empty(0), inserted=np.empty(0, dtype=bool))
        return cls(
            score=np.concatenate([table.score for table in tables]),
            inserted=np.concatenate([table.inserted for table in tables]),
            run=np.concatenate([table.run for table in tables]),
            canary=np.concatenate([table.canary for table in tables]),
        )


def is_frame(table: object) -> bool:
    """Whether this is a data frame: something with named columns.

    Example:
        >>> is_frame([1.0, 2.0])
        False
    """
    if type(table).__name__ == "LazyFrame":  # polars warns where its columns are asked for
        return True
    return hasattr(table, "columns") and hasattr(table, "__getitem__")


def columns_of(frame: Any) -> dict[str, NDArray[Any]]:
    """The columns of a data frame that a table of scores has, as arrays; others are ignored.

    Arguments:
        frame: A data frame with the columns ``score`` and ``inserted``, and perhaps ``run`` and
            ``canary``.
    """
    if not is_frame(frame):
        raise InvalidScores(
            f"scores must be a data frame with named columns, got {type(frame).__name__}; use "
            "Scores(score=..., inserted=...) for arrays"
        )
    if type(frame).__name__ == "LazyFrame":
        raise InvalidScores(
            "scores must be a data frame that is computed, got a LazyFrame; use frame.collect()"
        )
    names = list(getattr(frame, "column_names", frame.columns))
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InvalidScores(
            f"the data frame must have the columns {' and '.join(REQUIRED)}, got "
            f"{', '.join(map(str, names)) or 'none'}; rename the column for {missing[0]!r}"
        )
    return {name: np.asarray(frame[name]) for name in (*REQUIRED, *OPTIONAL) if name in names}


def frame_of(columns: dict[str, NDArray[Any]]) -> Any:
    """The columns as a pandas data frame, which does not share their memory."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise MissingExtra("a data frame", "pandas") from None
    return pandas.DataFrame(columns, copy=True)


def store_columns(table: Any, **columns: NDArray[Any]) -> None:
    """Give a frozen table its checked columns, read-only and of one length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidScores(f"the columns of scores must have one length: {listed}")
    for name, column in columns.items():
        column.flags.writeable = False
        object.__setattr__(table, name, column)


def _one_dimension(name: str, column: ArrayLike) -> NDArray[Any]:
    masked = int(np.ma.getmaskarray(column).sum()) if np.ma.isMaskedArray(column) else 0
    if masked:
        raise InvalidScores(
            f"{name} has {masked} masked values; remove their rows from all columns, for example "
            "with column[~mask], because a masked value is no score"
        )
    try:
        given = as_array(name, column)
    except InvalidInput as error:
        raise InvalidScores(str(error)) from None
    if given.ndim != 1:
        raise InvalidScores(f"{name} must have one dimension, got shape {given.shape}")
    return given


def numbers(column: ArrayLike, name: str = "score") -> Array:
    """Finite or infinite numbers as an array of floats; anything else is refused."""
    try:
        given = _one_dimension(name, column)
        if given.dtype.kind not in "biuf" and not (
            given.dtype.kind == "O" and all(isinstance(item, Real | Decimal) for item in given)
        ):
            raise InvalidScores(f"{name} must be an array of numbers, got {given.dtype} values")
        values = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidScores):
            raise
        raise InvalidScores(f"{name} must be an array of numbers: {error}") from None
    missing = np.flatnonzero(np.isnan(values))
    if len(missing):
        raise InvalidScores(
            f"{name} is NaN in {len(missing)} of {len(values)} rows, the first is row "
            f"{missing[0]}; give a run that diverged a score, or leave such runs out with and "
            "without the canary"
        )
    return values


def _refuse_repeated_pairs(run: Integers, canary: Integers) -> None:
    later = (run[1:] > run[:-1]) | ((run[1:] == run[:-1]) & (canary[1:] > canary[:-1]))
    if later.all():  # in order, as audits store them
        return
    order = np.lexsort((canary, run))
    run, canary = run[order], canary[order]
    twice = np.flatnonzero((run[1:] == run[:-1]) & (canary[1:] == canary[:-1]))
    if len(twice):
        raise InvalidScores(
            f"{len(twice)} (run, canary) pairs occur more than once, the first is run "
            f"{run[twice[0]]}, canary {canary[twice[0]]}; remove repeated rows, and number the "
            "runs of different audits differently"
        )


def labels(column: ArrayLike) -> NDArray[np.bool_]:
    """Booleans, or 0 and 1, as an array of booleans; anything else is refused."""
    given = _one_dimension("inserted", column)
    if given.dtype.kind not in "biufc" and len(given):
        raise InvalidScores(f"inserted must hold booleans or 0 and 1, got {given.dtype} values")
    wrong = np.flatnonzero((given != 0) & (given != 1))
    if len(wrong):
        raise InvalidScores(
            f"inserted must be 0 or 1 in every row, got {given[wrong[0]]!s} in row {wrong[0]} "
            f"and {len(wrong)} wrong rows in all"
        )
    return given.astype(np.bool_)


def whole(name: str, column: ArrayLike) -> Integers:
    """Whole numbers as an array; anything else is refused."""
    given = _one_dimension(name, column)
    if np.issubdtype(given.dtype, np.integer) or len(given) == 0:
        return given.astype(np.int64)
    raise InvalidScores(f"{name} must hold whole numbers, got {given.dtype} values")


def _place_within(run: Integers) -> Integers:
    """For each row, how many earlier rows have the same run."""
    order = np.argsort(run, kind="stable")
    ordered = run[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    sizes = np.diff(starts, append=len(run))
    place = np.empty(len(run), dtype=np.int64)
    place[order] = np.arange(len(run)) - np.repeat(starts, sizes)
    return place
