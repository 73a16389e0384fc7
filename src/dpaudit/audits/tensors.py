"""Test canaries with names one by one, at a corrected level, so that a violation names a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpaudit.claims import ClaimTest
from dpaudit.claims.power import separation
from dpaudit.scores import Failure, Scores
from dpaudit.trainings.coins import inserted_in


def corrected(confidence: float, canaries: int) -> float:
    """Confidence of each of several tests, for a given confidence of all of them (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, canaries)


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


def weakest(scores: Scores, names: Sequence[str]) -> tuple[str, Scores]:
    """The canary whose scores depend least on its presence, and its scores."""
    own = [scores_of(scores, canary) for canary in range(len(names))]
    place = int(np.argmin([separation(one) for one in own]))
    return names[place], own[place]


def combined(tests: Mapping[str, ClaimTest], confidence: float) -> ClaimTest:
    """All tests as one: a violation by any canary is a violation.

    Arguments:
        tests: The test of each canary by its name, at a corrected confidence.
        confidence: Confidence of all tests together.
    """
    ordered = sorted(tests.items(), key=lambda item: item[1].p_value)
    worst = ordered[0][1]
    verdicts = {test.verdict for test in tests.values()}
    refuted = [name for name, test in ordered if test.verdict == "violation"]
    notes = dict.fromkeys(note for test in tests.values() for note in test.notes)
    found = [f"the scores of {', '.join(refuted)} refute the claim"] if refuted else []
    wealth = [test.e_value for test in tests.values() if test.e_value is not None]
    return replace(
        worst,
        verdict=next(one for one in ("violation", "inconclusive", "consistent") if one in verdicts),
        p_value=min(1.0, worst.p_value * len(tests)),
        e_value=float(np.mean(wealth)) if wealth else None,  # a mean of e-values is an e-value
        confidence=confidence,
        sample_size=sum(test.sample_size for test in tests.values()),
        notes=(*found, *notes),
    )
