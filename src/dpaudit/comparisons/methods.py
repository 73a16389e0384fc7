"""The methods without a theorem, for comparison with papers; their bounds say so.

They are registered in the entry points ``dpaudit.lower_bounds``, as those of other packages are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit._arrays import Array
from dpaudit.comparisons import bayesian, ratio
from dpaudit.curves import Family
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.diagnostics import Evidence
from dpaudit.lower_bounds.methods import (
    Method,
    Reading,
    Request,
    Test,
    at_best_threshold,
    counted,
)
from dpaudit.lower_bounds.selection import OnSameScores, Simultaneous
from dpaudit.privacy import Question


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
            return at_best_threshold(evidence, request, rule, rank)
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
