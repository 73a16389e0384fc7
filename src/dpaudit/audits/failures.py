"""Failed runs: when an audit gives up, and how failures enter the test of the claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import final

import numpy as np

from dpaudit.errors import TrainingFailed
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Scores

PATIENCE = 5
"""The audit gives up after this many failures with (or without) the canary and no success."""

TOO_MANY = 0.2
"""From this share of failed runs on, the result warns about it."""

SUSPICIOUS = 0.01
"""Below this p-value, the result says that failing depends on the canary."""


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
            raise TrainingFailed(
                f"the first {PATIENCE} trainings {which}all failed, the last (run {run}) with "
                f"{result.error}\n{result.traceback}"
            )
        return []

    def rest(self) -> list[Result]:
        """The failures that are not stored when all runs are done."""
        return [result for waiting in self._waiting.values() for result in waiting]


def failure_notes(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """How many runs failed with and without the canary, and what follows."""
    if not failures:
        return ()
    runs = scores.runs + len(failures)
    counted = "bounds and a violation count every failed run as a lowest score"
    failed = sum(failure.inserted for failure in failures)
    if any(failure.canaries > 1 for failure in failures):
        notes = [f"{len(failures)} of {runs} runs failed; {counted}"]
    else:
        inserted = int(scores.inserted.sum()) + failed
        other_failed, others = len(failures) - failed, runs - inserted
        notes = [
            f"{failed} of {inserted} runs with the canary and {other_failed} of {others} runs "
            f"without it failed; {counted}"
        ]
        from scipy.stats import fisher_exact  # slow to import

        table = [[failed, inserted - failed], [other_failed, others - other_failed]]
        chance = float(fisher_exact(table).pvalue)
        if chance < SUSPICIOUS:
            notes.append(
                f"failing depends on the canary (Fisher's exact test, p = {chance:.2g}): a failure "
                "is an output that reveals the canary"
            )
    if len(failures) > TOO_MANY * runs:
        notes.append(f"{100 * len(failures) / runs:.0f} % of the runs failed; repair this first")
    return tuple(notes)
