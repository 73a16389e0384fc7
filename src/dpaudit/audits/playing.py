"""Playing an audit: the tiles that the store lacks, stored as soon as they are done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Self, final

from dpaudit.audits.description import Description
from dpaudit.audits.failures import FailurePolicy
from dpaudit.audits.progress import Progress
from dpaudit.audits.watching import Watcher
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import estimate
from dpaudit.scores import AuditRecord, Failure, ScoreBlock

SECONDS_BETWEEN_BOUNDS = 2.0

_SECONDS_AT_RISK = 0.5
"""A commit waits for the disk, so results that are faster than this are written together."""

Results = Iterator[tuple[int, Any]]


@final
class Tiles:
    """The tiles of one audit, played by an executor and stored in a record.

    Arguments:
        record: The audit in the store.
        description: The audit.
        progress: Progress callback.
        delta: Delta at which the bound so far is computed.
        runs: Number of runs to play.
    """

    def __init__(
        self,
        record: AuditRecord,
        description: Description,
        *,
        progress: Progress,
        delta: float,
        runs: int,
    ) -> None:
        self._record, self._description, self._progress = record, description, progress
        self._delta, self._runs = delta, runs
        count = -(-runs // description.speed.tile_size)
        done = record.finished_tiles()
        self.missing = [tile for tile in range(count) if tile not in done]
        self.resumed = sum(description.runs_of(tile) for tile in done if tile < count)
        self._last_bound = time.perf_counter()

    def begin(self) -> None:
        """Report the finished runs to the progress callback."""
        self._progress.begin(runs=self._runs, done=self.resumed)

    def keep(
        self, results: Results, policy: FailurePolicy | None = None, watcher: Watcher | None = None
    ) -> None:
        """Store results as they come, until the watcher has a proof.

        Arguments:
            results: Numbers of tiles with their results.
            policy: Decides about failed runs of a user's training; a mechanism's never fail.
            watcher: Tests the scores as they come.
        """
        with contextlib.closing(_closable(results)) as played, Keeper(self._record) as keeper:
            for tile, result in played:
                released = [(tile, result)] if policy is None else policy.released(tile, result)
                keeper.keep(*released)
                self._advance(keeper, self._description.runs_of(tile), bounds=watcher is None)
                if watcher is not None:
                    watcher.see(tile, result.score if isinstance(result, ScoreBlock) else None)
                    if watcher.refuted:
                        break
            else:
                keeper.keep(*(policy.rest() if policy is not None else ()))

    def _advance(self, keeper: Keeper, runs: int, *, bounds: bool = True) -> None:
        self._progress.advance(runs)
        due = time.perf_counter() - self._last_bound > SECONDS_BETWEEN_BOUNDS
        if bounds and due and self._progress.wants_bounds:
            keeper.write()
            with contextlib.suppress(DpauditError):  # too early: one group has no score yet
                found = estimate(self._record.scores(), delta=self._delta, method="gaussian-dp")
                self._progress.bound(found.epsilon)
            self._last_bound = time.perf_counter()


def _closable(results: Results) -> Any:
    """A generator, so that leaving the loop early stops the executor's workers."""
    yield from results


@final
class Keeper:
    """Stores results as they come; a context manager that writes everything at its end.

    Arguments:
        record: The audit in the store.
    """

    def __init__(self, record: AuditRecord) -> None:
        self._record = record
        self._waiting: list[tuple[int, ScoreBlock | Failure]] = []
        self._written = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.write()

    def keep(self, *results: tuple[int, ScoreBlock | Failure]) -> None:
        """Store results by the number of their tile."""
        self._waiting += results
        if time.perf_counter() - self._written > _SECONDS_AT_RISK:
            self.write()

    def write(self) -> None:
        """Write everything that waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._record.add_tiles(waiting)
        self._written = time.perf_counter()
