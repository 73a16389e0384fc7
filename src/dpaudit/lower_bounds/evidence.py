"""What a lower bound is computed from, and what one should know about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES, within_run_dependence
from dpaudit.scores import Failure, Scores
from dpaudit.scores.table import is_frame

Evidence = Scores | ErrorCounts


def evidence_of(given: Any) -> Evidence:
    """Scores or counts as they are, and a data frame as scores; anything else is refused."""
    if isinstance(given, Scores | ErrorCounts):
        return given
    if is_frame(given):
        return Scores.from_pandas(given)
    raise InvalidInput(
        "evidence must be Scores, ErrorCounts or a data frame with the columns score and inserted, "
        f"got {type(given).__name__}; make a table with Scores.from_samples(inserted, not_inserted)"
    )


def check_both_kinds(scores: Scores) -> None:
    """Refuse scores that are all inserted or all not inserted."""
    inserted = int(scores.inserted.sum())
    if inserted == 0 or inserted == len(scores):
        kind = "not inserted" if inserted == 0 else "inserted"
        raise InvalidScores(
            f"all {len(scores)} scores are of canaries that were {kind}; a bound compares scores "
            "with and without the canary and needs at least one of each"
        )


def dependence_of(scores: Scores) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The assumption that several canaries per run need, and a note with their correlation."""
    if not scores.clustered:
        return (), ()
    return (INDEPENDENT_CANARIES,), (within_run_dependence(scores).sentence,)


def with_failures(scores: Scores, failures: Sequence[Failure]) -> Scores:
    """The scores, with every canary of a failed run at the lowest score, minus infinity.

    A training that may fail is a mechanism with one more output value. Guessing "not inserted" for
    it is a function of that output, so bounds and verdicts hold for the mechanism that includes
    failures, also if failures depend on the canary. Leaving failures out has no such guarantee.
    """
    if not failures:
        return scores
    inserted = [np.arange(failure.canaries) < failure.inserted for failure in failures]
    lost = Scores(
        score=np.full(sum(map(len, inserted)), -np.inf),
        inserted=np.concatenate(inserted),
        run=np.repeat([one.run for one in failures], [one.canaries for one in failures]),
        canary=np.concatenate([np.arange(len(one)) for one in inserted]),
    )
    return Scores.concat([scores, lost])


def wrong_way(scores: Scores) -> tuple[str, ...]:
    """A note if inserted canaries have the lower scores."""
    ones, zeros = (
        group[:: 1 + len(group) // 100_000]  # enough for a diagnostic
        for group in (scores.inserted_scores, scores.other_scores)
    )
    zeros = np.sort(zeros)
    below = np.searchsorted(zeros, ones, side="left") + np.searchsorted(zeros, ones, side="right")
    area = float(below.mean()) / (2 * len(zeros))
    # Three standard deviations of the area under the curve when there is no signal.
    if area < 0.5 - 3 * np.sqrt((1 / len(ones) + 1 / len(zeros)) / 12):
        return (
            f"the scores point the wrong way (area under the curve {area:.3f}): "
            "higher must mean inserted",
        )
    return ()
