"""The methods, one line each: name, test, family of curves, assumptions and guarantee.

A bound is the largest parameter of a family of trade-off curves that a test of the scores refutes.
Four tests have a theorem: at one threshold (`joint_test`), at every threshold (`simultaneous`),
with the guesses of one run (`one_run`), and with independent guesses (`one_run_independent`); a
fifth reads means and variances of normal scores (`gaussian_fit`). Each is imported when it is used.
`dpaudit.comparisons.methods` has the methods without a theorem.

A method of your own is one `Method`, registered with an entry point in the group
``dpaudit.lower_bounds``. Check it with `dpaudit.testing.check_lower_bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import GAUSSIAN, Family, pairs_family
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts, middle_of_best
from dpaudit.lower_bounds.diagnostics import (
    FAIR_COINS,
    GAUSSIAN_TRADE_OFF,
    INDEPENDENT_CANARIES,
    Evidence,
    dependence_of,
    evidence_of,
    wrong_way,
)
from dpaudit.lower_bounds.joint_test import at_one_threshold
from dpaudit.lower_bounds.selection import (
    Fixed,
    OnSameScores,
    Pilot,
    Simultaneous,
    ThresholdRule,
)
from dpaudit.privacy import Bound, Guarantee, Question
from dpaudit.scores.table import Scores

if TYPE_CHECKING:
    from dpaudit.lower_bounds.guesses import Planner

NO_LEAK = "nothing can be claimed: the errors are compatible with no leak at all"


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a method.

    Arguments:
        question: What is bounded.
        rule: How the threshold is chosen.
        confidence: Probability that the bound holds.
        seed: Random seed of the pilot, where the rule has none.
    """

    question: Question
    rule: ThresholdRule
    confidence: float = 0.95
    seed: int = 0


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
        family: The family of curves, or a function from what is asked to the family.
        assumptions: What must be true for the bound to hold.
        guarantee: In which sense the stated confidence holds.
        reads_counts: Whether the four counts are enough.
        paper: Where it was published.
    """

    name: str
    test: Test
    family: Family | Callable[[Question], Family] = pairs_family
    assumptions: tuple[str, ...] = ()
    guarantee: Guarantee = "confidence"
    reads_counts: bool = False
    paper: str = ""

    def bound(self, evidence: Evidence | Any, request: Request) -> Bound:
        """The bound that the evidence supports."""
        evidence, question = evidence_of(evidence), request.question
        family = self.family if isinstance(self.family, Family) else self.family(question)
        if family is GAUSSIAN and question.delta == 0:
            raise InvalidInput(
                f"delta must be above 0 for {self.name}, got 0: a Gaussian trade-off function has "
                "an infinite epsilon there; use clopper-pearson"
            )
        if isinstance(evidence, ErrorCounts) and not self.reads_counts:
            raise InvalidInput(
                f"method {self.name!r} needs the scores, not only the four counts; "
                "use clopper-pearson or gaussian-dp"
            )
        reading = self.test(evidence, family, request)
        value = family.answer(max(reading.parameter, 0.0), question)
        return Bound(
            epsilon=value if question.epsilon is None else question.epsilon,
            delta=value if question.delta is None else question.delta,
            quantity="delta" if question.delta is None else "epsilon",
            side="lower",
            method=self.name,
            confidence=request.confidence,
            guarantee=self.guarantee if reading.has_theorem else "none",
            assumptions=(*self.assumptions, *reading.assumptions),
            sample_size=reading.sample_size,
            mu=max(reading.parameter, 0.0) if family is GAUSSIAN else None,
            notes=reading.notes if value > 0 or reading.notes else (NO_LEAK,),
            details=reading.details,
        )


def at_threshold(
    evidence: Evidence, family: Family, request: Request, *, caution: float = 1.0
) -> Reading:
    """The joint test of both error rates, at the threshold of any rule.

    A pilot ranks thresholds at the level divided by ``caution``. Where many are equally good
    (Gaussian scores) this keeps a lucky tail from winning.
    """
    level, rule = 1 - request.confidence, request.rule
    if isinstance(evidence, ErrorCounts):
        return counted(evidence, evidence, 0, at_one_threshold(evidence, family, level), request)
    inserted, others = evidence.inserted_scores, evidence.other_scores
    if isinstance(rule, Simultaneous):
        from dpaudit.lower_bounds.simultaneous import at_every_threshold

        counts = ErrorCounts.sweep(inserted, others)
        parameter, place = at_every_threshold(counts, family, level)
        return counted(evidence, counts, place, parameter, request)
    if isinstance(rule, OnSameScores):
        return at_best_threshold(
            evidence,
            request,
            rule,
            lambda counts, level: family.through(*counts.upper_rates(level)),
        )
    counts = rule.choose(
        inserted,
        others,
        lambda pilot: family.through(*pilot.upper_rates(level / caution)),
        # The joint test spends nearly all of the level on the rate that limits the bound.
        lambda rest: np.maximum(family.through(*rest.upper_rates(2 * level)), 0),
    )
    return counted(evidence, counts, 0, at_one_threshold(counts, family, level), request)


def at_best_threshold(
    scores: Scores,
    request: Request,
    rule: OnSameScores,
    rank: Callable[[ErrorCounts, float], Array],
) -> Reading:
    """The largest of the bounds that ``rank`` gives at each threshold, at a significance."""
    counts = ErrorCounts.sweep(scores.inserted_scores, scores.other_scores)
    if len(counts) == 0:
        return counted(scores, counts, None, 0.0, request)
    counts, level = rule.tried(counts, 1 - request.confidence)
    values = rank(counts, level)
    place = middle_of_best(values)
    return counted(scores, counts, place, float(values[place]), request)


def counted(
    evidence: Evidence, counts: ErrorCounts, place: int | None, parameter: float, request: Request
) -> Reading:
    """The reading at one of the thresholds, with its four counts; `None` if there is none."""
    details: dict[str, Any] = {}
    if place is not None:
        fp, fn = int(counts.false_positives[place]), int(counts.false_negatives[place])
        details = {
            "true_positives": counts.positives - fn,
            "false_negatives": fn,
            "false_positives": fp,
            "true_negatives": counts.negatives - fp,
        }
    sample_size = counts.negatives + counts.positives
    if isinstance(evidence, ErrorCounts):
        return Reading(
            parameter=parameter,
            sample_size=sample_size,
            assumptions=Fixed.assumptions,
            details=details,
        )
    rule = request.rule
    dependence, notes = dependence_of(evidence)
    if place is None:
        notes = (
            "nothing can be claimed: all scores are equal, so no threshold separates them",
            *notes,
        )
    else:
        threshold = float(counts.thresholds[place])
        details = {"threshold": threshold if np.isfinite(threshold) else None, **details}
        if parameter <= 0 and not notes:
            notes = (NO_LEAK,)
        notes = (*notes, *wrong_way(evidence))
    return Reading(
        parameter=parameter,
        sample_size=sample_size,
        assumptions=(*rule.assumptions, *dependence),
        notes=notes,
        details={"threshold_rule": rule.name, **details},
        has_theorem=not isinstance(rule, OnSameScores),
    )


def band(scores: Scores, family: Family, request: Request) -> Reading:
    """The simultaneous bands at all thresholds, whatever the rule, with the whole curve."""
    from dpaudit.lower_bounds.simultaneous import proven_curve

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


def guesses(
    scores: Scores, family: Family, request: Request, *, independent: bool = False
) -> Reading:
    """The guesses of one run, which a pilot plans; its canaries may depend on each other or not."""
    from dpaudit.lower_bounds.guesses import guessed

    significance = 1 - request.confidence
    planner: Planner
    if independent:
        from dpaudit.lower_bounds.one_run_independent import of_independent_guesses as largest
        from dpaudit.lower_bounds.one_run_independent import plan_every_guess

        planner = plan_every_guess
    else:
        from dpaudit.lower_bounds.one_run import of_guesses as largest
        from dpaudit.lower_bounds.one_run import plan_for

        planner = partial(plan_for, family, significance=significance)
    pilot, notes = request.rule, wrong_way(scores)
    if not isinstance(pilot, Pilot):
        note = f"the rule {pilot.name!r} does not apply to guesses: a pilot plans them"
        pilot, notes = Pilot(seed=request.seed), (note, *notes)
    turned_out = guessed(scores, planner, pilot)
    right, number = turned_out.correct, turned_out.guesses
    abstentions = turned_out.canaries - number
    return Reading(
        parameter=largest(turned_out, family, significance),
        sample_size=turned_out.canaries,
        notes=(f"{right} of {number} guesses right, {abstentions} abstentions", *notes),
        details={"correct": right, "guesses": number},
    )


def means(scores: Scores, family: Family, request: Request) -> Reading:
    """The means and the common variance of normal scores."""
    from dpaudit.lower_bounds.gaussian_fit import fit_gaussian

    dependence, notes = dependence_of(scores)
    inserted, others = scores.inserted_scores, scores.other_scores
    fit = fit_gaussian(inserted, others, significance=1 - request.confidence)
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


_NORMAL_SCORES = "scores are normal with the same variance with and without the canary"

# fmt: off
CLOPPER_PEARSON = Method(
    name="clopper-pearson", test=at_threshold, reads_counts=True, paper="Jagielski et al. 2020")
GAUSSIAN_DP = Method(
    name="gaussian-dp", test=partial(at_threshold, caution=100.0), family=GAUSSIAN,
    assumptions=(GAUSSIAN_TRADE_OFF,), reads_counts=True, paper="Nasr et al. 2023")
PROFILE = Method(name="profile", test=band)
GAUSSIAN_FIT = Method(
    name="gaussian-fit", test=means, family=GAUSSIAN,
    assumptions=(GAUSSIAN_TRADE_OFF, _NORMAL_SCORES))
ONE_RUN = Method(
    name="one-run", test=guesses, assumptions=(FAIR_COINS,), paper="Steinke et al. 2023")
ONE_RUN_FDP = Method(
    name="one-run-fdp", test=guesses, family=GAUSSIAN,
    assumptions=(FAIR_COINS, GAUSSIAN_TRADE_OFF), paper="Mahloujifar et al. 2025")
ONE_RUN_INDEPENDENT = Method(
    name="one-run-independent", test=partial(guesses, independent=True), family=GAUSSIAN,
    assumptions=(FAIR_COINS, INDEPENDENT_CANARIES, GAUSSIAN_TRADE_OFF), paper="Xiang et al. 2025")
