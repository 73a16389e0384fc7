"""What failed runs mean for an audit, and when it must not go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpaudit.errors import TrainingFailed
from dpaudit.scores import Failure, Scores

PATIENCE = 5
"""So many runs of one world may fail before any succeeds; then something is wrong with them all."""

TOO_MANY = 0.2
"""The share of failed runs from which the audit says that it is too large."""

SUSPICIOUS = 0.01
"""Below this p-value, failing is said to depend on the canary."""


@final
class Patience:
    """Gives up when one world has only failures.

    Failures are handed on for keeping once their world has had a success: a training that cannot
    run at all, for want of a file say, leaves nothing in the store, and can be put right.
    """

    def __init__(self) -> None:
        self._succeeded: set[object] = set()
        self._waiting: defaultdict[object, list[Failure]] = defaultdict(list)

    def success(self, world: object) -> list[Failure]:
        """A run of this world gave scores; the failures to keep now."""
        self._succeeded.add(world)
        return self._waiting.pop(world, [])

    def failure(self, world: object, failure: Failure) -> list[Failure]:
        """A run of this world failed; the failures to keep now."""
        if world in self._succeeded:
            return [failure]
        waiting = self._waiting[world]
        waiting.append(failure)
        if len(waiting) >= PATIENCE:
            which = {True: "with the canary ", False: "without the canary "}.get(world, "")  # type: ignore[call-overload]
            raise TrainingFailed(
                f"the first {PATIENCE} trainings {which}all failed, the last (run {failure.run}) "
                f"with {failure.error}\n{failure.traceback}"
            )
        return []

    def rest(self) -> list[Failure]:
        """Failures still waiting when all runs are done."""
        return [failure for waiting in self._waiting.values() for failure in waiting]


def failure_notes(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """How many runs of each world failed, and what that means."""
    if not failures:
        return ()
    runs = scores.runs + len(failures)
    too_many = (
        (f"{len(failures) / runs:.0%} of the runs failed: put that right before believing more",)
        if len(failures) > TOO_MANY * runs
        else ()
    )
    if any(failure.canaries > 1 for failure in failures):
        return (
            f"{len(failures)} of {runs} runs failed and are left out; a violation is only said "
            "if it holds with each of their canaries guessed 'not inserted'",
            *too_many,
        )
    failed = sum(failure.inserted for failure in failures)
    inserted = int(scores.inserted.sum()) + failed
    others = runs - inserted
    notes = [
        f"{failed} of {inserted} runs with the canary and {len(failures) - failed} of {others} "
        "runs without it failed and are left out; a violation is only said if it holds with every "
        "failed run guessed 'not inserted', which is sound however failures come about"
    ]
    notes += too_many
    chance = dependence_p_value(failed, inserted, len(failures) - failed, others)
    if chance < SUSPICIOUS:
        notes.append(
            f"failing depends on the canary (p = {chance:.2g}): a failure is an output too, and "
            "whoever sees it learns of the canary; bounds from the other runs are then no bounds "
            "on this training"
        )
    return tuple(notes)


def dependence_p_value(failed: int, inserted: int, other_failed: int, others: int) -> float:
    """Fisher's exact test that both worlds fail equally often, on both sides.

    Example:
        >>> round(dependence_p_value(5, 10, 0, 10), 4)
        0.0325
    """
    total, every = failed + other_failed, inserted + others
    counts = np.arange(max(0, total - others), min(total, inserted) + 1)
    logs = _log_choose(inserted, counts) + _log_choose(others, total - counts)
    chances = np.exp(logs - _log_choose(every, np.array([total])))
    here = chances[failed - counts[0]]
    return float(min(1.0, chances[chances <= here * (1 + 1e-9)].sum()))


def _log_choose(size: int, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(gammaln(size + 1) - gammaln(counts + 1) - gammaln(size - counts + 1))


def guessed_not_inserted(scores: Scores, failures: Sequence[Failure]) -> Scores:
    """All runs, with every canary of a failed one guessed 'not inserted', whatever the threshold.

    A training together with "or it fails" is a mechanism, and this guess is a function of its
    output: its error rates keep every promise that the mechanism keeps, also where failures depend
    on the canary.
    """
    inserted = [np.arange(failure.canaries) < failure.inserted for failure in failures]
    labels = np.concatenate(inserted) if inserted else np.empty(0, dtype=bool)
    run = np.repeat(
        [failure.run for failure in failures], [failure.canaries for failure in failures]
    ).astype(np.int64)
    canary = np.concatenate([np.arange(len(one)) for one in inserted] or [np.empty(0, np.int64)])
    lost = Scores(score=np.full(len(labels), -np.inf), inserted=labels, run=run, canary=canary)
    return Scores.concat([scores, lost])
