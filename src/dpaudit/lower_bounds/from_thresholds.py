"""Bounds from the errors at a threshold: of scores, or of counts that somebody thresholded."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpaudit.lower_bounds.contract import Answer, CountEstimator, OneThreshold
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.gaussian_dp import GaussianDP
from dpaudit.lower_bounds.task import (
    Task,
    check_gaussian_question,
    dependence_of,
    wrong_way,
)
from dpaudit.lower_bounds.thresholds import Chosen
from dpaudit.privacy import Bound
from dpaudit.scores import Scores


def from_counts(counts: ErrorCounts, estimator: CountEstimator, task: Task) -> Bound:
    """The bound at the threshold that the counts were made with."""
    chosen = Chosen(counts=counts, levels=OneThreshold(task.significance))
    given = ("the threshold behind the counts was fixed before the scores were seen",)
    return _read(estimator, chosen, task, assumptions=given)


def from_thresholds(scores: Scores, estimator: CountEstimator, task: Task) -> Bound:
    """The bound at the threshold that the task's rule chooses."""
    dependence, notes = dependence_of(scores)
    chosen = task.rule.choose(
        estimator, scores.inserted_scores, scores.other_scores, task.question, task.significance
    )
    if chosen is None:
        reason = "nothing can be claimed: all scores are equal, so no threshold separates anything"
        return task.bound(
            estimator.name,
            Answer(value=0.0, mu=0.0 if isinstance(estimator, GaussianDP) else None),
            sample_size=len(scores),
            assumptions=(*estimator.assumptions, *task.rule.assumptions, *dependence),
            notes=(reason, *notes),
            threshold_rule=task.rule.name,
        )
    return _read(
        estimator,
        chosen,
        task,
        assumptions=(*task.rule.assumptions, *dependence),
        notes=(*chosen.notes, *notes, *wrong_way(scores)),
        threshold_rule=task.rule.name,
        threshold=chosen.threshold if np.isfinite(chosen.threshold) else None,
    )


def _read(
    estimator: CountEstimator,
    chosen: Chosen,
    task: Task,
    *,
    assumptions: tuple[str, ...],
    notes: tuple[str, ...] = (),
    **details: Any,
) -> Bound:
    """The bound at a chosen threshold, with the counts it was read from."""
    if isinstance(estimator, GaussianDP):
        check_gaussian_question(task.question, estimator.name)
    merit = float(estimator.merit(chosen.counts, task.question, chosen.levels)[0])
    answer = estimator.answer(merit, task.question)
    false_positives = int(chosen.counts.false_positives[0])
    false_negatives = int(chosen.counts.false_negatives[0])
    return task.bound(
        estimator.name,
        answer,
        sample_size=chosen.counts.sample_size,
        assumptions=(*estimator.assumptions, *assumptions),
        notes=notes,
        **details,
        true_positives=chosen.counts.positives - false_negatives,
        false_negatives=false_negatives,
        false_positives=false_positives,
        true_negatives=chosen.counts.negatives - false_positives,
    )
