"""What a lower-bound method is: evidence and a task go in, a `Bound` comes out.

A new method is one file with one subclass, and one line in `registry`. Subclass `CountMethod` if
the bound is a function of the error counts at a threshold, `ScoreMethod` if it needs the scores.
Check it with `dpaudit.testing.check_lower_bound`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.evidence import Evidence, check_both_kinds, dependence_of, wrong_way
from dpaudit.lower_bounds.levels import Pointwise
from dpaudit.lower_bounds.questions import Answer, AtDelta, Question
from dpaudit.lower_bounds.task import Task
from dpaudit.lower_bounds.thresholds import Chosen, Fixed, Ranking, Sample
from dpaudit.privacy import Bound, Guarantee
from dpaudit.scores import Scores


class Method(ABC):
    """A lower bound on epsilon at a delta, or on delta at an epsilon."""

    name: ClassVar[str]
    paper: ClassVar[str]
    # What must be true for the bound to hold; empty if nothing is assumed.
    assumptions: ClassVar[tuple[str, ...]] = ()
    # In which sense the stated confidence holds, at a threshold chosen without the scores.
    guarantee: ClassVar[Guarantee] = "confidence"
    # Whether epsilon is infinite at delta 0, as it is for every Gaussian trade-off function.
    needs_positive_delta: ClassVar[bool] = False

    @final
    def bound(self, evidence: Evidence, task: Task) -> Bound:
        """The bound that the evidence supports."""
        if self.needs_positive_delta and task.question == AtDelta(0.0):
            raise InvalidInput(
                f"delta must be above 0 for {self.name}, got 0: a Gaussian trade-off function has "
                "an infinite epsilon there; use clopper-pearson"
            )
        if isinstance(evidence, ErrorCounts):
            return self.from_counts(evidence, task)
        check_both_kinds(evidence)
        return self.from_scores(evidence, task)

    @abstractmethod
    def from_scores(self, scores: Scores, task: Task) -> Bound:
        """The bound from scores with and without the canary, at least one of each."""

    @abstractmethod
    def from_counts(self, counts: ErrorCounts, task: Task) -> Bound:
        """The bound from the error counts at one threshold."""


class ScoreMethod(Method):
    """A method that needs the scores themselves."""

    @final
    def from_counts(self, counts: ErrorCounts, task: Task) -> Bound:
        raise InvalidInput(
            f"method {self.name!r} needs the scores, not only the four counts; "
            "use clopper-pearson or gaussian-dp"
        )


class CountMethod(Method, Ranking):
    """A method that reads the error counts at a threshold.

    It ranks thresholds by a *merit* (see `Ranking`), and `answer` turns the merit of the chosen
    threshold into the bound.
    """

    @abstractmethod
    def answer(self, merit: float, question: Question) -> Answer:
        """The epsilon or delta, at least 0, that belongs to a merit."""

    @final
    def from_counts(self, counts: ErrorCounts, task: Task) -> Bound:
        chosen = Chosen(counts=counts, levels=Pointwise(task.significance, joint=True))
        return self._read(chosen, task, assumptions=Fixed.assumptions, guarantee=self.guarantee)

    @final
    def from_scores(self, scores: Scores, task: Task) -> Bound:
        dependence, notes = dependence_of(scores)
        sample = Sample(
            inserted=scores.inserted_scores,
            not_inserted=scores.other_scores,
            question=task.question,
            significance=task.significance,
        )
        chosen = task.rule.choose(self, sample)
        assumptions = (*task.rule.assumptions, *dependence)
        guarantee = self.guarantee if task.rule.has_theorem else "none"
        if chosen is None:
            reason = "nothing can be claimed: all scores are equal, so no threshold separates them"
            return task.bound(
                self.name,
                self.answer(0.0, task.question),
                sample_size=len(scores),
                assumptions=(*self.assumptions, *assumptions),
                guarantee=guarantee,
                notes=(reason, *notes),
                threshold_rule=task.rule.name,
            )
        return self._read(
            chosen,
            task,
            assumptions=assumptions,
            guarantee=guarantee,
            notes=(*chosen.notes, *notes, *wrong_way(scores)),
            threshold_rule=task.rule.name,
            threshold=chosen.threshold if np.isfinite(chosen.threshold) else None,
        )

    def _read(
        self,
        chosen: Chosen,
        task: Task,
        *,
        assumptions: tuple[str, ...],
        guarantee: Guarantee,
        notes: tuple[str, ...] = (),
        **details: Any,
    ) -> Bound:
        """The bound at the chosen threshold, with the four counts among its details."""
        counts = chosen.counts
        merit = float(self.merit(counts, task.question, chosen.levels)[0])
        false_positives = int(counts.false_positives[0])
        false_negatives = int(counts.false_negatives[0])
        return task.bound(
            self.name,
            self.answer(merit, task.question),
            sample_size=counts.sample_size,
            assumptions=(*self.assumptions, *assumptions),
            guarantee=guarantee,
            notes=notes,
            **details,
            true_positives=counts.positives - false_negatives,
            false_negatives=false_negatives,
            false_positives=false_positives,
            true_negatives=counts.negatives - false_positives,
        )
