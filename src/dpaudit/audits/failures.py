"""Failed runs: which of them are stored, and when an audit gives up."""

from __future__ import annotations

from collections import defaultdict
from typing import final

import numpy as np

from dpaudit.errors import TrainingFailed
from dpaudit.scores import AuditRecord, Failure, ScoreBlock

PATIENCE = 5
"""The audit gives up after this many failures with (or without) the canary and no success."""

Result = tuple[int, ScoreBlock | Failure]
"""The number of a run, and its scores or its failure."""


@final
class FailurePolicy:
    """Decides what happens to a run that failed, and gives up when all first runs fail.

    Failures are released for storing after the first success with (or without) the canary. A
    training that cannot run at all, for example because a file is missing, leaves nothing in the
    store, and can be repaired and audited again.

    Arguments:
        record: The audit in the store, whose successes count.
        canaries: Canaries per run; runs with several canaries form one group.
        stop: Raise at the first failure. It is not stored, so that the same call tries it again.
    """

    def __init__(self, record: AuditRecord, *, canaries: int, stop: bool) -> None:
        self._stop, self._single = stop, canaries == 1
        self._waiting: defaultdict[bool | None, list[Result]] = defaultdict(list)
        self._succeeded = {
            self._group(inserted) for inserted in np.unique(record.scores().inserted).tolist()
        }

    def _group(self, inserted: object) -> bool | None:
        return bool(inserted) if self._single else None

    def released(self, run: int, result: ScoreBlock | Failure) -> list[Result]:
        """The results to store now that this one is known."""
        if isinstance(result, ScoreBlock):
            group = self._group(result.inserted[0])
            self._succeeded.add(group)
            return [(run, result), *self._waiting.pop(group, [])]
        if self._stop:
            raise TrainingFailed(f"run {run} failed with {result.error}\n{result.traceback}")
        group = self._group(result.inserted)
        if group in self._succeeded:
            return [(run, result)]
        self._waiting[group].append((run, result))
        if len(self._waiting[group]) >= PATIENCE:
            which = {True: "with the canary ", False: "without the canary ", None: ""}[group]
            array = (
                f" ('inserted' is an array of {result.canaries} coins, one for each canary)"
                if group is None
                else ""
            )
            raise TrainingFailed(
                f"the first {PATIENCE} trainings {which}all failed, the last (run {run}) with "
                f"{result.error}{array}\n{result.traceback}"
            )
        return []

    def rest(self) -> list[Result]:
        """The failures that are not stored when all runs are done."""
        return [result for waiting in self._waiting.values() for result in waiting]
