"""Failed runs: when an audit gives up, and how failures enter the test of the claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import final

from dpaudit.errors import TrainingFailed
from dpaudit.scores import Failure, Scores

PATIENCE = 5
"""The audit gives up after this many failures with (or without) the canary and no success."""

TOO_MANY = 0.2
"""From this share of failed runs on, the result warns about it."""

SUSPICIOUS = 0.01
"""Below this p-value, the result says that failing depends on the canary."""


@final
class Patience:
    """Gives up when all first runs with the canary, or all without it, fail.

    Failures are released for storing after the first success of their group. A training that
    cannot run at all, for example because a file is missing, leaves nothing in the store, and can
    be repaired and audited again.
    """

    def __init__(self) -> None:
        self._succeeded: set[object] = set()
        self._waiting: defaultdict[object, list[Failure]] = defaultdict(list)

    def success(self, group: object) -> list[Failure]:
        """A run of this group gave scores; returns the failures to store now."""
        self._succeeded.add(group)
        return self._waiting.pop(group, [])

    def failure(self, group: object, failure: Failure) -> list[Failure]:
        """A run of this group failed; returns the failures to store now."""
        if group in self._succeeded:
            return [failure]
        waiting = self._waiting[group]
        waiting.append(failure)
        if len(waiting) >= PATIENCE:
            which = {True: "with the canary ", False: "without the canary "}.get(group, "")  # type: ignore[call-overload]
            raise TrainingFailed(
                f"the first {PATIENCE} trainings {which}all failed, the last (run {failure.run}) "
                f"with {failure.error}\n{failure.traceback}"
            )
        return []

    def rest(self) -> list[Failure]:
        """Failures that are not released when all runs are done."""
        return [failure for waiting in self._waiting.values() for failure in waiting]


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
        notes.append(f"{len(failures) / runs:.0%} of the runs failed; repair this first")
    return tuple(notes)
