"""What scores and failures themselves say against a verdict: doubts about it, and notes beside it.

A doubt keeps the verdict from being ``consistent``; a note is printed and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpaudit._arrays import Array
from dpaudit._numbers import percent
from dpaudit.scores import Failure, Scores

TOO_MANY = 0.2
"""If a larger share of the runs fails, the verdict cannot be ``consistent``."""

SUSPICIOUS = 0.01
"""Below this p-value, failing depends on the canary, and the verdict cannot be ``consistent``."""


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
        share = f"{percent(len(failures) / runs, 2)} %"
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


def constant_scores(scores: Scores) -> tuple[str, ...]:
    """A reason to doubt the verdict if no score depends on the seed of its run."""
    groups = [
        scores.score[(scores.canary == canary) & (scores.inserted == inserted)]
        for canary in np.unique(scores.canary)[:50]
        for inserted in (False, True)
    ]
    if scores.runs < 8:
        return ()
    if any(len(group) > 1 and np.ptp(group) > 0 for group in groups):
        return _repeated_draws(groups)
    return (
        "All runs with the canary have the same score, and so have all runs without it: the "
        "training adds no noise, it does not draw its noise from its seed, or the score is too "
        "coarse.",
    )


def _repeated_draws(groups: list[Array]) -> tuple[str, ...]:
    """A reason to doubt the verdict if most scores repeat others, and are not just rounded."""
    for group in groups:
        different = np.unique(group[np.isfinite(group)])
        if len(group) < 8 or not 2 < len(different) <= len(group) / 2:
            continue
        apart = np.diff(different)
        multiples = apart / apart.min()
        if np.abs(multiples - np.round(multiples)).max() > 0.01:
            return (
                f"{len(group)} runs gave only {len(different)} different scores: the noise of some "
                "runs repeats that of others, so that the runs are not independent. Does the "
                "training use all digits of its seed?",
            )
    return ()


def repetition_notes(scores: Scores) -> tuple[str, ...]:
    """A warning if different runs with (or without) the canary gave exactly the same scores."""
    order = np.lexsort((scores.run, scores.inserted, scores.canary))
    canary, group, run = scores.canary[order], scores.inserted[order], scores.run[order]
    follows = (np.diff(canary) == 0) & (np.diff(group) == 0) & (np.diff(run) != 0)
    same = np.diff(scores.score[order]) == 0
    # Scores that are counts or accuracies repeat now and then; scores with noise do not.
    if follows.sum() < 4 or same[follows].mean() <= 0.9:
        return ()
    return (
        "different runs gave exactly the same scores: the training adds no noise, or it does not "
        "draw its noise from the seed that it is given; in the second case the runs are not "
        "independent and the verdict does not hold",
    )
