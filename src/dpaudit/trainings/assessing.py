"""From the scores and failures of a training audit to its verdict. Nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import TrainingFailed
from dpaudit.scores import Failure, Scores
from dpaudit.trainings.failing import guessed_not_inserted


def tested(
    scores: Scores,
    failures: Sequence[Failure],
    claim: Claim,
    *,
    confidence: float,
    seed: int,
) -> ClaimTest:
    """The test of the claim on all scores, for a number of runs that was fixed beforehand.

    A violation must survive every failed run being guessed 'not inserted': that guess keeps the
    promise whatever failures depend on, so the probability of a false alarm stays at its level.
    """
    check_both_worlds(scores, failures)
    test = test_claim(scores, claim, confidence=confidence, seed=seed)
    if not failures or test.verdict != "violation":
        return test
    cautious = test_claim(
        guessed_not_inserted(scores, failures), claim, confidence=confidence, seed=seed
    )
    if cautious.verdict == "violation":
        return replace(test, p_value=max(test.p_value, cautious.p_value))
    note = (
        f"the {len(scores):,} scores alone would refute the claim (p = {test.p_value:.2g}), but "
        f"not with the {len(failures)} failed runs guessed 'not inserted' "
        f"(p = {cautious.p_value:.2g}): put the failures right and repeat"
    )
    return replace(
        test, verdict="inconclusive", p_value=cautious.p_value, notes=(*test.notes, note)
    )


def check_both_worlds(scores: Scores, failures: Sequence[Failure]) -> None:
    """Raise where one world has no score."""
    inserted = int(scores.inserted.sum())
    if 0 < inserted < len(scores):
        return
    which = "with" if inserted == 0 else "without"
    problem = f"no run {which} the canary gave a score, and an audit compares the two worlds"
    if failures:
        last = failures[-1]
        raise TrainingFailed(
            f"{problem}; {len(failures)} runs failed, the last (run {last.run}) with {last.error}"
            f"\n{last.traceback}"
        )
    raise TrainingFailed(f"{problem}; play more runs")


def repetition_notes(scores: Scores) -> tuple[str, ...]:
    """A warning where different runs of one world gave the very same scores.

    Either nothing random is added, which is a violation, or the training does not draw its noise
    from the seed, and its runs are one run counted many times.
    """
    if not _repeats(scores):
        return ()
    return (
        "different runs gave exactly the same scores: either the training adds no noise, or it "
        "does not draw its noise from the seed it is handed; then the runs are not independent, "
        "and the verdict says nothing about a training with fresh noise",
    )


def _repeats(scores: Scores) -> bool:
    order = np.lexsort((scores.run, scores.inserted, scores.canary))
    canary, world, run = scores.canary[order], scores.inserted[order], scores.run[order]
    follows = (np.diff(canary) == 0) & (np.diff(world) == 0) & (np.diff(run) != 0)
    same = np.diff(scores.score[order]) == 0
    # Scores that are counts or accuracies repeat now and then; noise never does.
    return bool(follows.sum() >= 4 and same[follows].mean() > 0.9)
