"""Scores: the only hand-over from training to statistics.

A score says how strongly one canary of one run looks inserted. Everything a lower bound may know of
an audit is in this table; nothing here knows of torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidScores


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """One row for each (run, canary): its score, and whether that canary was inserted.

    Only the order of scores carries meaning for most bounds: higher means "inserted", and an
    infinite score means "surely" (or "surely not"). A class may be missing here; bounds that need
    both raise when they meet such a table. The arrays are read-only.

    See also: `dpaudit.scores.read_scores`, `dpaudit.scores.Store`.

    Arguments:
        score: The scores, shape (n,). Infinities are allowed, NaN is not.
        inserted: Whether the canary was in the training, shape (n,): booleans, or 0 and 1.
        run: The training that each row comes from, shape (n,). Rows of the same run are not
            independent. Without it every row is a run of its own.
        canary: The canary that the row is about, shape (n,), unique within its run. Without it
            the canaries of a run are numbered in the order of its rows.

    Example:
        >>> scores = Scores(score=[0.1, 2.3, -0.4], inserted=[0, 1, 0])
        >>> scores.inserted_scores, scores.runs, scores.clustered
        (array([2.3]), 3, False)
    """

    score: NDArray[np.float64]
    inserted: NDArray[np.bool_]
    run: NDArray[np.int64] = None  # type: ignore[assignment]  # filled in below
    canary: NDArray[np.int64] = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        score, inserted = _numbers(self.score), _labels(self.inserted)
        _refuse_nan(score)
        run = np.arange(len(score)) if self.run is None else _whole("run", self.run)
        canary = _place_within(run) if self.canary is None else _whole("canary", self.canary)
        _store_columns(self, score=score, inserted=inserted, run=run, canary=canary)

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        inserted = int(self.inserted.sum())
        return f"Scores({inserted} inserted, {len(self) - inserted} not, {self.runs} runs)"

    @property
    def inserted_scores(self) -> NDArray[np.float64]:
        """The scores of inserted canaries, in the order of the table."""
        return self.score[self.inserted]

    @property
    def other_scores(self) -> NDArray[np.float64]:
        """The scores of canaries that were not inserted, in the order of the table."""
        return self.score[~self.inserted]

    @cached_property
    def runs(self) -> int:
        """How many different runs there are."""
        return len(self._run_sizes)

    @cached_property
    def canaries_per_run(self) -> int:
        """The largest number of canaries in one run; 0 for an empty table."""
        return int(self._run_sizes.max(initial=0))

    @property
    def clustered(self) -> bool:
        """Whether some run has more than one canary, so that rows are not independent."""
        return self.canaries_per_run > 1

    @cached_property
    def _run_sizes(self) -> NDArray[np.int64]:
        return np.unique(self.run, return_counts=True)[1]

    @classmethod
    def from_samples(cls, inserted: ArrayLike, not_inserted: ArrayLike) -> Scores:
        """Scores from two samples, one run for each number.

        Example:
            >>> len(Scores.from_samples([3.1, 2.7], [0.2, -0.1, 0.4]))
            5
        """
        ones, zeros = _numbers(inserted, "inserted"), _numbers(not_inserted, "not_inserted")
        labels = np.repeat([True, False], [len(ones), len(zeros)])
        return cls(score=np.concatenate([ones, zeros]), inserted=labels)

    @classmethod
    def concat(cls, parts: Iterable[Scores]) -> Scores:
        """Several tables as one. The same run number means the same run in all of them.

        A (run, canary) pair that occurs twice is refused: either rows were counted twice, or two
        audits both number their runs from 0 and would look dependent.

        Example:
            >>> one = Scores(score=[1.0, 0.0], inserted=[1, 0], run=[0, 1])
            >>> two = Scores(score=[2.0, 0.5], inserted=[1, 0], run=[2, 3])
            >>> Scores.concat([one, two])
            Scores(2 inserted, 2 not, 4 runs)
        """
        tables = list(parts)
        if not tables:
            return cls(score=np.empty(0), inserted=np.empty(0, dtype=bool))
        whole = cls(
            score=np.concatenate([table.score for table in tables]),
            inserted=np.concatenate([table.inserted for table in tables]),
            run=np.concatenate([table.run for table in tables]),
            canary=np.concatenate([table.canary for table in tables]),
        )
        order = np.lexsort((whole.canary, whole.run))
        run, canary = whole.run[order], whole.canary[order]
        twice = np.flatnonzero((np.diff(run) == 0) & (np.diff(canary) == 0))
        if len(twice):
            raise InvalidScores(
                f"{len(twice)} (run, canary) pairs occur more than once, the first is run "
                f"{run[twice[0]]}, canary {canary[twice[0]]}; number the runs of different "
                "audits differently"
            )
        return whole


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreBlock:
    """The scores that one tile of an audit produced, ready to be stored. Columns of equal length.

    See also: `dpaudit.scores.Store`.

    Arguments:
        run: The run, numbered over the whole audit.
        canary: The canary within the run.
        horizon: The number of steps after which the score was taken: an audit of a training of
            T steps has horizon T, and earlier ones where they were asked for.
        inserted: Whether the canary was inserted in that run.
        score: Higher means "inserted". NaN is refused.

    Example:
        >>> block = ScoreBlock(
        ...     run=[0, 1], canary=[0, 0], horizon=[250, 250], inserted=[1, 0], score=[3.2, -0.1]
        ... )
        >>> len(block), block.horizons
        (2, (250,))
    """

    run: NDArray[np.int64]
    canary: NDArray[np.int64]
    horizon: NDArray[np.int64]
    inserted: NDArray[np.bool_]
    score: NDArray[np.float64]

    def __post_init__(self) -> None:
        score = _numbers(self.score)
        _refuse_nan(score)
        _store_columns(
            self,
            run=_whole("run", self.run),
            canary=_whole("canary", self.canary),
            horizon=_whole("horizon", self.horizon),
            inserted=_labels(self.inserted),
            score=score,
        )

    def __len__(self) -> int:
        return len(self.score)

    @property
    def horizons(self) -> tuple[int, ...]:
        """The different horizons in the block, ascending."""
        return tuple(np.unique(self.horizon).tolist())

    def scores(self, horizon: int) -> Scores:
        """The rows of one horizon, as a table of scores."""
        rows = self.horizon == horizon
        return Scores(
            score=self.score[rows],
            inserted=self.inserted[rows],
            run=self.run[rows],
            canary=self.canary[rows],
        )


def _store_columns(table: Any, **columns: NDArray[Any]) -> None:
    """Give a frozen table its checked columns, read-only and of one length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidScores(f"the columns of scores must have one length: {listed}")
    for name, column in columns.items():
        column.flags.writeable = False
        object.__setattr__(table, name, column)


def _one_dimension(name: str, column: NDArray[Any]) -> NDArray[Any]:
    if column.ndim != 1:
        raise InvalidScores(f"{name} must have one dimension, got shape {column.shape}")
    return column


def _numbers(column: ArrayLike, name: str = "score") -> NDArray[np.float64]:
    try:
        return _one_dimension(name, np.array(column, dtype=np.float64))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidScores):
            raise
        raise InvalidScores(f"{name} must be an array of numbers: {error}") from None


def _refuse_nan(score: NDArray[np.float64]) -> None:
    missing = np.flatnonzero(np.isnan(score))
    if len(missing):
        raise InvalidScores(
            f"score is NaN in {len(missing)} of {len(score)} rows, the first is row {missing[0]}; "
            "a run that diverged still needs a score, or must be left out of both worlds"
        )


def _labels(column: ArrayLike) -> NDArray[np.bool_]:
    given = _one_dimension("inserted", np.asarray(column))
    if given.dtype == np.bool_:
        return given.copy()
    if not (np.issubdtype(given.dtype, np.number) or len(given) == 0):
        raise InvalidScores(f"inserted must hold booleans or 0 and 1, got {given.dtype} values")
    wrong = np.flatnonzero((given != 0) & (given != 1))
    if len(wrong):
        raise InvalidScores(
            f"inserted must be 0 or 1 in every row, got {given[wrong[0]]!s} in row {wrong[0]} "
            f"and {len(wrong)} wrong rows in all"
        )
    return given.astype(np.bool_)


def _whole(name: str, column: ArrayLike) -> NDArray[np.int64]:
    given = _one_dimension(name, np.asarray(column))
    if np.issubdtype(given.dtype, np.integer) or len(given) == 0:
        return given.astype(np.int64)
    raise InvalidScores(f"{name} must hold whole numbers, got {given.dtype} values")


def _place_within(run: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row, how many earlier rows have the same run."""
    order = np.argsort(run, kind="stable")
    ordered = run[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    sizes = np.diff(starts, append=len(run))
    place = np.empty(len(run), dtype=np.int64)
    place[order] = np.arange(len(run)) - np.repeat(starts, sizes)
    return place
