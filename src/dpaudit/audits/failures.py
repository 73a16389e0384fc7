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
"""If a larger share of the runs fails, the verdict cannot be ``consistent``."""

SUSPICIOUS = 0.01
"""Below this p-value, failing depends on the canary, and the verdict cannot be ``consistent``."""


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


def failure_notes(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """How many runs failed with and without the canary, and how they are counted."""
    if not failures:
        return ()
    counted = "bounds and a violation count every failed run as a lowest score"
    table = _failed_and_others(scores, failures)
    if table is None:
        runs = scores.runs + len(failures)
        return (f"{len(failures)} of {runs} runs failed; {counted}",)
    (failed, rest), (other_failed, other_rest) = table
    return (
        f"{failed} of {failed + rest} runs with the canary and {other_failed} of "
        f"{other_failed + other_rest} runs without it failed; {counted}",
    )


def failure_doubts(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """Why failed runs leave a verdict in doubt, as sentences."""
    if not failures:
        return ()
    doubts, runs = [], scores.runs + len(failures)
    table = _failed_and_others(scores, failures)
    if table is not None:
        from scipy.stats import fisher_exact  # slow to import

        chance = float(fisher_exact(table).pvalue)
        if chance < SUSPICIOUS:
            doubts.append(
                f"Failing depends on the canary (Fisher's exact test, p = {chance:.2g}): a failure "
                "is an output that reveals the canary, and the scores of the other runs do not "
                "show it. Find out why these runs fail, and repeat the audit."
            )
    if len(failures) > TOO_MANY * runs:
        share = f"{100 * len(failures) / runs:.0f} %"
        doubts.append(f"{share} of the runs failed: repair this, and repeat the audit.")
    return tuple(doubts)


def _failed_and_others(
    scores: Scores, failures: Sequence[Failure]
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Numbers of failed and of other runs, with and without the canary; `None` for several."""
    if any(failure.canaries > 1 for failure in failures):
        return None
    failed = sum(failure.inserted for failure in failures)
    inserted = int(scores.inserted.sum())
    return (failed, inserted), (len(failures) - failed, scores.runs - inserted)
