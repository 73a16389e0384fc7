"""The scores and failures of each canary, where canaries have names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpaudit.scores import Failure, Scores
from dpaudit.trainings.run import inserted_in


def scores_of(scores: Scores, canary: int) -> Scores:
    """The scores of one canary, in all runs."""
    own = scores.canary == canary
    return Scores(score=scores.score[own], inserted=scores.inserted[own], run=scores.run[own])


def failures_of(failures: Sequence[Failure], canary: int, *, seed: int) -> tuple[Failure, ...]:
    """The failed runs as failures of one canary.

    Arguments:
        failures: Failed runs, with all their canaries.
        canary: Number of the canary.
        seed: Random seed of the audit, which decides in which runs the canary is.
    """
    return tuple(
        replace(
            one,
            inserted=int(inserted_in(one.run, canaries=one.canaries, seed=seed)[canary]),
            canaries=1,
        )
        for one in failures
    )
