"""The methods and rules without a theorem, for comparison with papers; their bounds say so.

`dpaudit.comparisons` has the formulas. `methods` has the methods with a theorem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit._arrays import Array
from dpaudit.comparisons import bayesian, ratio
from dpaudit.comparisons.rules import OnSameScores, hull_of
from dpaudit.curves import Family
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts, middle_of_best
from dpaudit.lower_bounds.diagnostics import Evidence
from dpaudit.lower_bounds.methods import Method, Reading, Request, Test, counted
from dpaudit.lower_bounds.selection import Simultaneous
from dpaudit.privacy import Question
from dpaudit.scores.table import Scores

Rank = Callable[[ErrorCounts, float], Array]
"""A bound per threshold at a significance."""


def at_best_threshold(scores: Scores, request: Request, rank: Rank) -> Reading:
    """The largest bound over all thresholds, by the rules ``best`` and ``bonferroni``."""
    level = 1 - request.confidence
    counts = ErrorCounts.sweep(scores.inserted_scores, scores.other_scores)
    if len(counts) == 0:
        return counted(scores, counts, None, 0.0, request)
    if request.rule.name == "bonferroni":
        counts = counts[
            hull_of(
                counts.false_positives, counts.false_negatives, counts.negatives, counts.positives
            )
        ]
        level /= len(counts) + 2  # "all" and "none inserted" are thresholds of the union bound too
    values = rank(counts, level)
    place = middle_of_best(values)
    return counted(scores, counts, place, float(values[place]), request)


def formula(function: Callable[..., Array]) -> Test:
    """A formula of the four counts, at the threshold of any rule but ``simultaneous``."""

    def test(evidence: Evidence, family: Family, request: Request) -> Reading:
        def rank(counts: ErrorCounts, significance: float) -> Array:
            return function(
                counts.false_positives,
                counts.false_negatives,
                counts.negatives,
                counts.positives,
                question=request.question,
                significance=significance,
            )

        level, rule = 1 - request.confidence, request.rule
        if isinstance(evidence, ErrorCounts):
            return counted(evidence, evidence, 0, float(rank(evidence, level)[0]), request)
        if isinstance(rule, Simultaneous):
            raise InvalidInput(
                "threshold 'simultaneous' needs a method built on bounds of both error rates, "
                "clopper-pearson or gaussian-dp; use 'pilot'"
            )
        if isinstance(rule, OnSameScores):
            return at_best_threshold(evidence, request, rank)
        inserted, others = evidence.inserted_scores, evidence.other_scores
        counts = rule.choose(inserted, others, lambda pilot: rank(pilot, level))
        return counted(evidence, counts, 0, float(rank(counts, level)[0]), request)

    return test


def _ratio(limit: ratio.Limit) -> Test:
    """A formula for the ratio of two rates, which has no delta at a given epsilon."""

    def epsilon(*counts: Any, question: Question, significance: float) -> Array:
        if question.delta is None:
            raise InvalidInput(
                "an interval of a ratio of two rates has no delta at a given epsilon; use "
                "clopper-pearson, jeffreys or joint-beta"
            )
        return ratio.ratio_epsilon(limit, *counts, delta=question.delta, significance=significance)

    return formula(epsilon)


_PRIORS = "error rates have Jeffreys priors; the level is a posterior probability, not a confidence"
_ASYMPTOTIC = "counts are large enough for an asymptotic interval of a ratio of rates"

# fmt: off
JEFFREYS = Method(
    name="jeffreys", test=formula(bayesian.jeffreys), assumptions=(_PRIORS,),
    guarantee="credible", reads_counts=True, paper="Zanella-Béguelin et al. 2023")
JOINT_BETA = Method(
    name="joint-beta", test=formula(bayesian.joint_beta), assumptions=(_PRIORS,),
    guarantee="credible", reads_counts=True, paper="Zanella-Béguelin et al. 2023")
KATZ_LOG = Method(
    name="katz-log", test=_ratio(ratio.katz_log_ratio), assumptions=(_ASYMPTOTIC,),
    guarantee="none", reads_counts=True, paper="Lu et al. 2022")
ADJUSTED_LOG = Method(
    name="adjusted-log", test=_ratio(ratio.adjusted_log_ratio), assumptions=(_ASYMPTOTIC,),
    guarantee="none", reads_counts=True, paper="Lu et al. 2022")
BAILEY = Method(
    name="bailey", test=_ratio(ratio.bailey_ratio), assumptions=(_ASYMPTOTIC,),
    guarantee="none", reads_counts=True, paper="Lu et al. 2022")
INVERSE_SINH = Method(
    name="inverse-sinh", test=_ratio(ratio.inverse_sinh_ratio), assumptions=(_ASYMPTOTIC,),
    guarantee="none", reads_counts=True, paper="Lu et al. 2022")
