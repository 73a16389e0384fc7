"""From scores or counts to a lower bound: one call for every method."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.lower_bounds.clopper_pearson import ClopperPearson
from dpaudit.lower_bounds.contract import CountEstimator
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.formula import (
    ADJUSTED_LOG,
    BAILEY,
    INVERSE_SINH,
    JEFFREYS,
    JOINT_BETA,
    KATZ_LOG,
)
from dpaudit.lower_bounds.from_scores import from_gaussian_fit, from_one_run, from_profile
from dpaudit.lower_bounds.from_thresholds import from_counts, from_thresholds
from dpaudit.lower_bounds.gaussian_dp import GaussianDP
from dpaudit.lower_bounds.task import Task, check_both_kinds, question_of
from dpaudit.lower_bounds.thresholds import ThresholdRule, threshold_rule
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.scores import Scores

Evidence = Scores | ErrorCounts

COUNT_ESTIMATORS: dict[str, CountEstimator] = {
    estimator.name: estimator
    for estimator in (
        ClopperPearson(),
        GaussianDP(),
        JEFFREYS,
        JOINT_BETA,
        KATZ_LOG,
        ADJUSTED_LOG,
        BAILEY,
        INVERSE_SINH,
    )
}
SCORE_METHODS = ("gaussian-fit", "one-run", "one-run-fdp", "profile")
METHODS = (*COUNT_ESTIMATORS, *SCORE_METHODS)


def lower_bound(
    inserted: ArrayLike,
    not_inserted: ArrayLike,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str = "clopper-pearson",
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
) -> Bound:
    """A lower bound on epsilon from the scores of an audit.

    See also: `estimate` for a table of scores or counts, `estimate_all` for every method.

    Arguments:
        inserted: Scores of canaries that were in the training; higher must mean "inserted".
        not_inserted: Scores of canaries that were not.
        delta: Bound epsilon at this delta.
        epsilon: Or bound delta at this epsilon.
        method: One of `METHODS`.
        threshold: How the threshold is chosen: a word of `RULES`, or a rule.
        confidence: Probability that the bound is true, jointly over both error rates.
        seed: Draws the pilot scores.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> there, not_there = random.normal(2, 1, 2000), random.normal(0, 1, 2000)
        >>> lower_bound(there, not_there, delta=1e-5, method="gaussian-dp")
        Bound(epsilon >= 8.4182 at delta=1e-05, 95% confidence, gaussian-dp)
    """
    return estimate(
        Scores.from_samples(inserted, not_inserted),
        delta=delta,
        epsilon=epsilon,
        method=method,
        threshold=threshold,
        confidence=confidence,
        seed=seed,
    )


def estimate(
    evidence: Evidence,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str = "clopper-pearson",
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
) -> Bound:
    """A lower bound by one method, from a table of scores or from the four counts.

    Arguments as in `lower_bound`. Counts have been thresholded already, so ``threshold`` does not
    apply to them, and the methods that need the scores themselves refuse.
    """
    task = Task(
        question=question_of(delta, epsilon),
        rule=threshold_rule(threshold, seed=seed),
        confidence=_validate.confidence(confidence),
    )
    name = _validate.one_of("method", method, METHODS)
    if isinstance(evidence, ErrorCounts):
        if name not in COUNT_ESTIMATORS:
            raise InvalidInput(
                f"method {name!r} needs the scores, not only the four counts; "
                f"use one of {', '.join(COUNT_ESTIMATORS)}"
            )
        return from_counts(evidence, COUNT_ESTIMATORS[name], task)
    check_both_kinds(evidence)
    if name in COUNT_ESTIMATORS:
        return from_thresholds(evidence, COUNT_ESTIMATORS[name], task)
    if name == "gaussian-fit":
        return from_gaussian_fit(evidence, task)
    if name == "profile":
        return from_profile(evidence, task)
    return from_one_run(evidence, name, task)


def estimate_all(
    evidence: Evidence,
    *,
    methods: Iterable[str] = METHODS,
    delta: float | None = None,
    epsilon: float | None = None,
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
) -> Bounds:
    """Several methods on the same evidence; a method that cannot answer says why.

    Mistakes that no method could work with (a class missing, a delta of 2) are raised.
    """
    question_of(delta, epsilon)
    _validate.confidence(confidence)
    threshold_rule(threshold, seed=seed)
    if isinstance(evidence, Scores):
        check_both_kinds(evidence)
    bounds: list[Bound] = []
    unavailable: list[Unavailable] = []
    for method in methods:
        _validate.one_of("method", method, METHODS)
        try:
            bound = estimate(
                evidence,
                delta=delta,
                epsilon=epsilon,
                method=method,
                threshold=threshold,
                confidence=confidence,
                seed=seed,
            )
        except DpauditError as error:
            unavailable.append(Unavailable(method=method, reason=str(error)))
        else:
            bounds.append(bound)
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))
