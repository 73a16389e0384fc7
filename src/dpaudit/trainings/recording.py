"""The audit's place in a store, and how its runs get there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, final

import numpy as np

from dpaudit.errors import ConfigurationChanged, TrainingFailed
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Store
from dpaudit.scores.comparing import differences
from dpaudit.trainings.description import KIND, versions
from dpaudit.trainings.failing import Patience
from dpaudit.trainings.playing import Job, Outcome

_SECONDS_AT_RISK = 0.5
"""A commit waits for the disk. Runs that are quicker than that are written several at a time."""


def begin(
    store: Store, name: str | None, configuration: dict[str, Any], *, any_number: bool = False
) -> AuditRecord:
    """The audit's place in the store; a changed one under the same name is refused.

    So is, for audits without a name, another one of the same training while one is unfinished: who
    was interrupted and comes back with another option most likely wants the old audit.

    Arguments:
        store: Where.
        name: What the user calls the audit, if anything.
        configuration: As in `dpaudit.trainings.description.describe`.
        any_number: Go on with an audit that was asked for another number of runs: a test that is
            valid whenever one stops may be given more.
    """
    if any_number:
        for known in store.audits():
            if known.name == name and _but_for_runs(known.configuration, configuration):
                return store.begin(name, known.configuration, versions())
    for known in store.audits() if name is None else ():
        other = known.configuration
        same_training = other.get("kind") == KIND and (
            other["mechanism"]["name"] == configuration["mechanism"]["name"]
        )
        changed = differences(other, configuration)
        # One without a single run holds nothing that could be lost.
        begun = known.name is None and known.finished is None and known.finished_tiles()
        if begun and same_training and changed:
            raise ConfigurationChanged(
                f"{store.path} has an unfinished audit {known.id[:8]} of this training with "
                f"other settings: {'; '.join(changed)}; go on with those, or give this audit "
                "a name or another store"
            )
    return store.begin(name, configuration, versions())


def _but_for_runs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("kind") == KIND and not differences(one, {**other, "runs": one.get("runs")})


@final
class Keeper:
    """Keeps what comes of runs in a store; a context manager, at whose end all of it is there.

    Arguments:
        record: The audit in the store.
        job: What is played.
        stop: Raise at the first failure. It is not kept, so that the same call tries it again.
    """

    def __init__(self, record: AuditRecord, job: Job, *, stop: bool) -> None:
        self._record, self._job, self._stop = record, job, stop
        self._patience = Patience()
        self._waiting: list[tuple[int, ScoreBlock | Failure]] = []
        self._written = time.perf_counter()
        for world in self._worlds_seen():
            self._patience.success(world)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._waiting += [(failure.run, failure) for failure in self._patience.rest()]
        self.write()

    def keep(self, outcome: Outcome) -> None:
        """Keep one run, scored or failed."""
        world = self._world(outcome.run)
        if outcome.failure is None:
            failures = self._patience.success(world)
            self._waiting.append((outcome.run, self._job.block(outcome)))
        elif self._stop:
            raise TrainingFailed(
                f"run {outcome.run} failed with {outcome.failure.error}\n"
                f"{outcome.failure.traceback}"
            )
        else:
            failures = self._patience.failure(world, outcome.failure)
        self._waiting += [(failure.run, failure) for failure in failures]
        if time.perf_counter() - self._written > _SECONDS_AT_RISK:
            self.write()

    def write(self) -> None:
        """Write what waits, so that it is safe."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._record.add_tiles(waiting)
        self._written = time.perf_counter()

    def _world(self, run: int) -> bool | None:
        """Which world the run is in; `None` where its canaries are in both."""
        return bool(self._job.coins(run)[0]) if self._job.scorer.canaries == 1 else None

    def _worlds_seen(self) -> set[bool | None]:
        scores = self._record.scores()
        if self._job.scorer.canaries > 1:
            return {None} if len(scores) else set()
        return set(np.unique(scores.inserted).tolist())
