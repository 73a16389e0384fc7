"""The methods, one line each: name, test, family of curves, assumptions and guarantee.

A bound is the largest parameter of a family of trade-off curves that a test of the scores refutes.
Four tests have a theorem: at one threshold (`joint_test`), at every threshold (`simultaneous`),
with the guesses of one run (`one_run`), and with independent guesses (`one_run_independent`); a
fifth reads means and variances of normal scores (`gaussian_fit`). The formulas in
`dpaudit.comparisons` have none; their bounds say so.

A method of your own is one `Method`, registered with an entry point in the group
``dpaudit.lower_bounds``. Check it with `dpaudit.testing.check_lower_bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.comparisons import bayesian, ratio
from dpaudit.comparisons.rules import Bonferroni, hull_of
from dpaudit.curves import Family, GaussianCurves, pairs_family
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.diagnostics import (
    FAIR_COINS,
    GAUSSIAN_TRADE_OFF,
    INDEPENDENT_CANARIES,
    Evidence,
    check_both_kinds,
    dependence_of,
    wrong_way,
)
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, guessed
from dpaudit.lower_bounds.joint_test import at_one_threshold
from dpaudit.lower_bounds.one_run import of_guesses, plan_for
from dpaudit.lower_bounds.one_run_independent import of_independent_guesses, plan_every_guess
from dpaudit.lower_bounds.selection import (
    Fixed,
    Pilot,
    Simultaneous,
    ThresholdRule,
    threshold_rule,
)
from dpaudit.lower_bounds.simultaneous import at_every_threshold, middle_of_best, proven_curve
from dpaudit.privacy import AtDelta, Bound, Guarantee, Question, question_of
from dpaudit.scores import Scores

NO_LEAK = "nothing can be claimed: the errors are compatible with no leak at all"


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a method.

    Arguments:
        question: What is bounded.
        confidence: Probability that the bound holds.
        rule: How the threshold is chosen.
        seed: Random seed of the pilot, where the rule has none.
    """

    question: Question
    confidence: float
    rule: ThresholdRule
    seed: int = 0

    @property
    def significance(self) -> float:
        """The accepted probability that the bound is false."""
        return 1 - self.confidence

    @classmethod
    def asking(
        cls,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
        threshold: str | ThresholdRule = "pilot",
        confidence: float = 0.95,
        seed: int = 0,
    ) -> Request:
        """The request that the arguments of `dpaudit.estimate` describe."""
        return cls(
            question=question_of(delta, epsilon),
            confidence=_validate.confidence(confidence),
            rule=threshold_rule(threshold, seed=seed),
            seed=_validate.integer("seed", seed),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a test reads of scores or counts.

    Arguments:
        parameter: The largest parameter of the family that is refuted; not above 0 if none is.
        sample_size: Number of scores behind it.
        assumptions: What must be true beside the assumptions of the method.
        notes: Diagnostics.
        details: Further numbers, by name.
        has_theorem: Whether a theorem accounts for the choice of the threshold.
    """

    parameter: float
    sample_size: int
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    has_theorem: bool = True


Test = Callable[[Any, Family, Request], Reading]
"""Reads scores (or counts, if the method says so) against a family of curves."""


@final
@dataclass(frozen=True, kw_only=True)
class Method:
    """A lower bound on epsilon at a delta, or on delta at an epsilon.

    Arguments:
        name: Its name.
        test: The test that refutes curves.
        family: The family of curves that a question asks about.
        assumptions: What must be true for the bound to hold.
        guarantee: In which sense the stated confidence holds.
        reads_counts: Whether the four counts are enough.
        paper: Where it was published.
    """

    name: str
    test: Test
    family: Callable[[Question], Family] = pairs_family
    assumptions: tuple[str, ...] = ()
    guarantee: Guarantee = "confidence"
    reads_counts: bool = False
    paper: str = ""

    @property
    def needs_positive_delta(self) -> bool:
        """Whether epsilon is infinite at delta 0, as for every Gaussian trade-off function."""
        return self.family is gaussian_family

    def bound(self, evidence: Evidence, request: Request) -> Bound:
        """The bound that the evidence supports."""
        question = request.question
        if self.needs_positive_delta and question == AtDelta(0.0):
            raise InvalidInput(
                f"delta must be above 0 for {self.name}, got 0: a Gaussian trade-off function has "
                "an infinite epsilon there; use clopper-pearson"
            )
        if isinstance(evidence, Scores):
            check_both_kinds(evidence)
        elif not self.reads_counts:
            raise InvalidInput(
                f"method {self.name!r} needs the scores, not only the four counts; "
                "use clopper-pearson or gaussian-dp"
            )
        family = self.family(question)
        reading = self.test(evidence, family, request)
        value = family.answer(max(reading.parameter, 0.0), question)
        return Bound(
            **question.answered(value),
            side="lower",
            method=self.name,
            confidence=request.confidence,
            guarantee=self.guarantee if reading.has_theorem else "none",
            assumptions=(*self.assumptions, *reading.assumptions),
            sample_size=reading.sample_size,
            mu=max(reading.parameter, 0.0) if isinstance(family, GaussianCurves) else None,
            notes=reading.notes if value > 0 or reading.notes else (NO_LEAK,),
            details=reading.details,
        )


def gaussian_family(question: Question) -> Family:
    """mu-GDP, whatever is asked."""
    return GaussianCurves()


def at_threshold(*, caution: float = 1.0) -> Test:
    """The joint test of both error rates, at the threshold of any rule.

    Arguments:
        caution: Factor by which a pilot lowers the significance when it ranks thresholds. Where
            many are equally good (Gaussian scores) this keeps a lucky tail from winning.
    """

    def test(evidence: Evidence, family: Family, request: Request) -> Reading:
        def rank(counts: ErrorCounts, significance: float) -> Array:
            return family.through(*counts.upper_rates(significance))

        def read(counts: ErrorCounts) -> float:
            return at_one_threshold(counts, family, request.significance)

        if isinstance(evidence, Scores) and isinstance(request.rule, Simultaneous):
            counts = ErrorCounts.sweep(evidence.inserted_scores, evidence.other_scores)
            parameter, place = at_every_threshold(counts, family, request.significance)
            return _counted(evidence, counts, place, parameter, request)
        return _at_threshold(evidence, request, rank, read, caution=caution, foresees=True)

    return test


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

        def read(counts: ErrorCounts) -> float:
            return float(rank(counts, request.significance)[0])

        if isinstance(evidence, Scores) and isinstance(request.rule, Simultaneous):
            raise InvalidInput(
                "threshold 'simultaneous' needs a method built on bounds of both error rates, "
                "clopper-pearson or gaussian-dp; use 'pilot'"
            )
        return _at_threshold(evidence, request, rank, read)

    return test


def _at_threshold(
    evidence: Evidence,
    request: Request,
    rank: Callable[[ErrorCounts, float], Array],
    read: Callable[[ErrorCounts], float],
    *,
    caution: float = 1.0,
    foresees: bool = False,
) -> Reading:
    """The reading at the threshold that a rule chooses.

    Arguments:
        evidence: The scores or counts.
        request: What is asked.
        rank: One number per threshold at a significance; it ranks the thresholds.
        read: The parameter at one threshold that was chosen without the scores.
        caution: As in `at_threshold`.
        foresees: Whether a pilot that looks normal predicts the errors on the rest.
    """
    level, rule = request.significance, request.rule
    if isinstance(evidence, ErrorCounts):
        return _counted(evidence, evidence, 0, read(evidence), request)
    inserted, others = evidence.inserted_scores, evidence.other_scores
    if isinstance(rule, Pilot | Fixed):

        def merit(counts: ErrorCounts) -> Array:
            return rank(counts, level / caution)

        def foreseen_merit(counts: ErrorCounts) -> Array:
            # The joint test spends nearly all of the level on the rate that limits the bound.
            return np.maximum(rank(counts, 2 * level), 0)

        counts = rule.choose(inserted, others, merit, foreseen_merit if foresees else None)
        return _counted(evidence, counts, 0, read(counts), request)
    counts = ErrorCounts.sweep(inserted, others)
    if len(counts) == 0:
        return _counted(evidence, counts, None, 0.0, request)
    if isinstance(rule, Bonferroni):
        counts = counts[
            hull_of(
                counts.false_positives, counts.false_negatives, counts.negatives, counts.positives
            )
        ]
        level /= len(counts) + 2  # "all" and "none inserted" are thresholds of the union bound too
    values = rank(counts, level)
    place = middle_of_best(values)
    return _counted(evidence, counts, place, float(values[place]), request)


def _counted(
    evidence: Evidence, counts: ErrorCounts, place: int | None, parameter: float, request: Request
) -> Reading:
    """The reading at one of the thresholds, with its four counts; `None` if there is none."""
    if isinstance(evidence, ErrorCounts):
        return Reading(
            parameter=parameter,
            sample_size=counts.sample_size,
            assumptions=Fixed.assumptions,
            details=counts.four(0),
        )
    rule = request.rule
    dependence, notes = dependence_of(evidence)
    details: dict[str, Any] = {"threshold_rule": rule.name}
    if place is None:
        notes = (
            "nothing can be claimed: all scores are equal, so no threshold separates them",
            *notes,
        )
    else:
        threshold = float(counts.thresholds[place])
        details["threshold"] = threshold if np.isfinite(threshold) else None
        details |= counts.four(place)
        if parameter <= 0 and not notes:
            notes = (NO_LEAK,)
        notes = (*notes, *wrong_way(evidence))
    return Reading(
        parameter=parameter,
        sample_size=counts.sample_size,
        assumptions=(*rule.assumptions, *dependence),
        notes=notes,
        details=details,
        has_theorem=isinstance(rule, Pilot | Fixed | Simultaneous),
    )


def band(scores: Scores, family: Family, request: Request) -> Reading:
    """The simultaneous bands at all thresholds, whatever the rule, with the whole curve."""
    curve = proven_curve(scores, confidence=request.confidence)
    alpha, beta = curve.false_positive_upper, curve.false_negative_upper
    parameter = float(family.through(alpha, beta).max(initial=0.0))
    dependence, notes = dependence_of(scores)
    if parameter == 0:
        notes = ("nothing can be claimed: the band contains the line of no leak", *notes)
    return Reading(
        parameter=parameter,
        sample_size=curve.sample_size,
        assumptions=dependence,
        notes=(*notes, *wrong_way(scores)),
        details=curve.to_dict(),
    )


def guesses_of_one_run(scores: Scores, family: Family, request: Request) -> Reading:
    """The guesses of one run, whose canaries may depend on each other."""

    def planner(pilot: Array, coins: Any, remaining: int) -> GuessPlan:
        return plan_for(family, pilot, coins, remaining, request.significance)

    guesses, notes = _guessed(scores, planner, request)
    return _right(scores, guesses, of_guesses(guesses, family, request.significance), notes)


def independent_guesses(scores: Scores, family: Family, request: Request) -> Reading:
    """The guesses of one run, whose canaries are independent of each other."""
    guesses, notes = _guessed(scores, plan_every_guess, request)
    parameter = of_independent_guesses(guesses, family, request.significance)
    return _right(scores, guesses, parameter, notes)


def _guessed(scores: Scores, planner: Any, request: Request) -> tuple[Guesses, tuple[str, ...]]:
    """The guesses, and a note if the threshold rule does not apply to them."""
    if isinstance(request.rule, Pilot):
        return guessed(scores, planner, request.rule), ()
    note = f"the rule {request.rule.name!r} does not apply to guesses: a pilot plans them"
    return guessed(scores, planner, Pilot(seed=request.seed)), (note,)


def _right(scores: Scores, seen: Guesses, parameter: float, notes: tuple[str, ...]) -> Reading:
    abstentions = seen.canaries - seen.guesses
    counted = f"{seen.correct} of {seen.guesses} guesses right, {abstentions} abstentions"
    return Reading(
        parameter=parameter,
        sample_size=seen.canaries,
        notes=(counted, *notes, *wrong_way(scores)),
        details={"correct": seen.correct, "guesses": seen.guesses},
    )


def means(scores: Scores, family: Family, request: Request) -> Reading:
    """The means and the common variance of normal scores."""
    dependence, notes = dependence_of(scores)
    inserted, others = scores.inserted_scores, scores.other_scores
    fit = fit_gaussian(inserted, others, significance=request.significance)
    return Reading(
        parameter=0.0 if fit.rejected else fit.mu,
        sample_size=len(scores),
        assumptions=dependence,
        notes=(*fit.notes, *notes, *wrong_way(scores)),
        details={
            "mu_estimate": fit.estimate,
            "normality_p_value": fit.normality_p_value,
            "equal_variance_p_value": fit.equal_variance_p_value,
        },
    )


def _ratio(limit: ratio.Limit) -> Test:
    """A formula for the ratio of two rates, which has no delta at a given epsilon."""

    def epsilon(*counts: Any, question: Question, significance: float) -> Array:
        if not isinstance(question, AtDelta):
            raise InvalidInput(
                "an interval of a ratio of two rates has no delta at a given epsilon; use "
                "clopper-pearson, jeffreys or joint-beta"
            )
        return ratio.ratio_epsilon(limit, *counts, delta=question.delta, significance=significance)

    return formula(epsilon)


_NORMAL_SCORES = "scores are normal with the same variance with and without the canary"
_PRIORS = "error rates have Jeffreys priors; the level is a posterior probability, not a confidence"
_ASYMPTOTIC = "counts are large enough for an asymptotic interval of a ratio of rates"

# fmt: off
CLOPPER_PEARSON = Method(
    name="clopper-pearson", test=at_threshold(), reads_counts=True, paper="Jagielski et al. 2020")
GAUSSIAN_DP = Method(
    name="gaussian-dp", test=at_threshold(caution=100.0), family=gaussian_family,
    assumptions=(GAUSSIAN_TRADE_OFF,), reads_counts=True, paper="Nasr et al. 2023")
PROFILE = Method(name="profile", test=band)
GAUSSIAN_FIT = Method(
    name="gaussian-fit", test=means, family=gaussian_family,
    assumptions=(GAUSSIAN_TRADE_OFF, _NORMAL_SCORES))
ONE_RUN = Method(
    name="one-run", test=guesses_of_one_run, assumptions=(FAIR_COINS,), paper="Steinke et al. 2023")
ONE_RUN_FDP = Method(
    name="one-run-fdp", test=guesses_of_one_run, family=gaussian_family,
    assumptions=(FAIR_COINS, GAUSSIAN_TRADE_OFF), paper="Mahloujifar et al. 2025")
ONE_RUN_INDEPENDENT = Method(
    name="one-run-independent", test=independent_guesses, family=gaussian_family,
    assumptions=(FAIR_COINS, INDEPENDENT_CANARIES, GAUSSIAN_TRADE_OFF), paper="Xiang et al. 2025")
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
