"""From the scores and failures of a training audit to its verdict. Nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import TrainingFailed
from dpaudit.scores import Failure, Scores
from dpaudit.your_training.failing import guessed_not_inserted


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
