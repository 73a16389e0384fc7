"""What is asked of a method, and how its answer becomes a `Bound`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.contract import Answer, AtDelta, AtEpsilon, Question
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES, within_run_dependence
from dpaudit.lower_bounds.thresholds import Pilot, ThresholdRule
from dpaudit.privacy import Bound
from dpaudit.scores import Scores


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of a method: the question, the confidence, and how to choose a threshold."""

    question: Question
    rule: ThresholdRule
    confidence: float

    @property
    def significance(self) -> float:
        """The probability of error that the confidence leaves."""
        return 1 - self.confidence

    @property
    def pilot(self) -> Pilot:
        """The pilot that chooses numbers of guesses, where there is no threshold to choose."""
        return self.rule if isinstance(self.rule, Pilot) else Pilot()

    def bound(
        self,
        method: str,
        answer: Answer,
        *,
        sample_size: int,
        assumptions: tuple[str, ...],
        notes: tuple[str, ...] = (),
        **details: Any,
    ) -> Bound:
        """The answer as a `Bound`, with a reason where nothing can be claimed."""
        if answer.value <= 0 and not notes:
            notes = ("nothing can be claimed: the errors are compatible with no leak at all",)
        asked_epsilon = isinstance(self.question, AtDelta)
        return Bound(
            epsilon=answer.value if asked_epsilon else self.question.epsilon,  # type: ignore[union-attr]
            delta=self.question.delta if isinstance(self.question, AtDelta) else answer.value,
            quantity="epsilon" if asked_epsilon else "delta",
            side="lower",
            method=method,
            confidence=self.confidence,
            assumptions=assumptions,
            sample_size=sample_size,
            mu=answer.mu,
            notes=notes,
            details=details,
        )


def question_of(delta: float | None, epsilon: float | None) -> Question:
    """The question that one of delta and epsilon asks."""
    if (delta is None) == (epsilon is None):
        raise InvalidInput(
            f"give exactly one of delta and epsilon, got delta={delta!r} and epsilon={epsilon!r}"
        )
    return AtDelta(delta) if delta is not None else AtEpsilon(epsilon)  # type: ignore[arg-type]


def check_both_kinds(scores: Scores) -> None:
    """Refuse scores of one world alone."""
    inserted = int(scores.inserted.sum())
    if inserted == 0 or inserted == len(scores):
        kind = "inserted" if inserted == 0 else "not inserted"
        raise InvalidScores(
            f"the scores hold no {kind} canary ({len(scores)} scores in all); a bound compares the "
            "two worlds and needs at least one score of each"
        )


def check_gaussian_question(question: Question, method: str) -> None:
    """Refuse delta 0, where a Gaussian trade-off curve has no finite epsilon."""
    if isinstance(question, AtDelta) and question.delta == 0:
        raise InvalidInput(
            f"delta must be above 0 for {method}, got 0: a Gaussian trade-off curve has an "
            "infinite epsilon there; use clopper-pearson"
        )


def dependence_of(scores: Scores) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The assumption that many canaries in one run bring, and a note on how true it looks."""
    if not scores.clustered:
        return (), ()
    return (INDEPENDENT_CANARIES,), (within_run_dependence(scores).sentence,)


def wrong_way(scores: Scores) -> tuple[str, ...]:
    """A hint where the scores separate the worlds, but upside down."""
    ones, zeros = scores.inserted_scores, np.sort(scores.other_scores)
    below = np.searchsorted(zeros, ones, side="left") + np.searchsorted(zeros, ones, side="right")
    area = float(below.mean()) / (2 * len(zeros))
    # Three standard deviations of the area under the curve when there is no signal.
    if area < 0.5 - 3 * np.sqrt((1 / len(ones) + 1 / len(zeros)) / 12):
        return (
            f"the scores point the wrong way (area under the curve {area:.3f}): "
            "higher must mean inserted",
        )
    return ()
