"""What is asked of a method, and how its answer becomes a `Bound`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from dpaudit import _validate
from dpaudit.lower_bounds.questions import Answer, Question, question_of
from dpaudit.lower_bounds.thresholds import Pilot, ThresholdRule, threshold_rule
from dpaudit.privacy import Bound, Guarantee


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of a method: the question, the confidence, and the threshold rule."""

    question: Question
    rule: ThresholdRule
    confidence: float

    @classmethod
    def asking(
        cls,
        *,
        delta: float | None,
        epsilon: float | None,
        threshold: str | ThresholdRule,
        confidence: float,
        seed: int,
    ) -> Task:
        """The task that the arguments of `dpaudit.estimate` describe."""
        return cls(
            question=question_of(delta, epsilon),
            rule=threshold_rule(threshold, seed=seed),
            confidence=_validate.confidence(confidence),
        )

    @property
    def significance(self) -> float:
        """The accepted probability that the bound is false."""
        return 1 - self.confidence

    @property
    def pilot(self) -> Pilot:
        """The pilot that chooses numbers of guesses, for methods without a threshold."""
        return self.rule if isinstance(self.rule, Pilot) else Pilot()

    def bound(
        self,
        method: str,
        answer: Answer,
        *,
        sample_size: int,
        assumptions: tuple[str, ...],
        guarantee: Guarantee = "confidence",
        notes: tuple[str, ...] = (),
        **details: Any,
    ) -> Bound:
        """The answer as a `Bound`, with a reason where it is 0."""
        if answer.value <= 0 and not notes:
            notes = ("nothing can be claimed: the errors are compatible with no leak at all",)
        return Bound(
            **self.question.answered(answer.value),
            side="lower",
            method=method,
            confidence=self.confidence,
            guarantee=guarantee,
            assumptions=assumptions,
            sample_size=sample_size,
            mu=answer.mu,
            notes=notes,
            details=details,
        )
