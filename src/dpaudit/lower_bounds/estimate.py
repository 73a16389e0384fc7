"""From scores or counts to a lower bound: one call for every method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput, InvalidScores
from dpaudit.lower_bounds.clopper_pearson import ClopperPearson
from dpaudit.lower_bounds.contract import (
    Answer,
    AtDelta,
    AtEpsilon,
    CountEstimator,
    OneThreshold,
    Question,
)
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES, within_run_dependence
from dpaudit.lower_bounds.formula import (
    ADJUSTED_LOG,
    BAILEY,
    INVERSE_SINH,
    JEFFREYS,
    JOINT_BETA,
    KATZ_LOG,
)
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF, GaussianDP
from dpaudit.lower_bounds.gaussian_fit import ASSUMPTIONS as GAUSSIAN_SCORES
from dpaudit.lower_bounds.gaussian_fit import FEWEST_TO_CHECK, fit_gaussian
from dpaudit.lower_bounds.one_run import (
    choose_guesses,
    count_guesses,
    one_run_delta,
    one_run_epsilon,
)
from dpaudit.lower_bounds.one_run_fdp import choose_gaussian_guesses, one_run_gaussian_mu
from dpaudit.lower_bounds.profile import proven_curve
from dpaudit.lower_bounds.thresholds import Chosen, Pilot, ThresholdRule, threshold_rule
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

FAIR_COINS = "every canary was inserted by its own fair coin"


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
    task = _Task(
        question=_question(delta, epsilon),
        rule=threshold_rule(threshold, seed=seed),
        confidence=_validate.confidence(confidence),
    )
    name = _validate.one_of("method", method, METHODS)
    if isinstance(evidence, ErrorCounts):
        return _from_counts(evidence, name, task)
    _check_both_kinds(evidence)
    if name in COUNT_ESTIMATORS:
        return _from_thresholds(evidence, COUNT_ESTIMATORS[name], task)
    if name == "gaussian-fit":
        return _from_gaussian_fit(evidence, task)
    if name == "profile":
        return _from_profile(evidence, task)
    return _from_one_run(evidence, name, task)


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
    _question(delta, epsilon)
    _validate.confidence(confidence)
    threshold_rule(threshold, seed=seed)
    if isinstance(evidence, Scores):
        _check_both_kinds(evidence)
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


@final
@dataclass(frozen=True, kw_only=True)
class _Task:
    """What is asked of a method: the question, the confidence, and how to choose a threshold."""

    question: Question
    rule: ThresholdRule
    confidence: float

    @property
    def significance(self) -> float:
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


def _question(delta: float | None, epsilon: float | None) -> Question:
    if (delta is None) == (epsilon is None):
        raise InvalidInput(
            f"give exactly one of delta and epsilon, got delta={delta!r} and epsilon={epsilon!r}"
        )
    return AtDelta(delta) if delta is not None else AtEpsilon(epsilon)  # type: ignore[arg-type]


def _check_both_kinds(scores: Scores) -> None:
    inserted = int(scores.inserted.sum())
    if inserted == 0 or inserted == len(scores):
        kind = "inserted" if inserted == 0 else "not inserted"
        raise InvalidScores(
            f"the scores hold no {kind} canary ({len(scores)} scores in all); a bound compares the "
            "two worlds and needs at least one score of each"
        )


def _check_gaussian_question(question: Question, method: str) -> None:
    if isinstance(question, AtDelta) and question.delta == 0:
        raise InvalidInput(
            f"delta must be above 0 for {method}, got 0: a Gaussian trade-off curve has an "
            "infinite epsilon there; use clopper-pearson"
        )


def _from_counts(counts: ErrorCounts, method: str, task: _Task) -> Bound:
    if method not in COUNT_ESTIMATORS:
        raise InvalidInput(
            f"method {method!r} needs the scores, not only the four counts; "
            f"use one of {', '.join(COUNT_ESTIMATORS)}"
        )
    chosen = Chosen(counts=counts, levels=OneThreshold(task.significance))
    given = ("the threshold behind the counts was fixed before the scores were seen",)
    return _read(COUNT_ESTIMATORS[method], chosen, task, assumptions=given)


def _from_thresholds(scores: Scores, estimator: CountEstimator, task: _Task) -> Bound:
    dependence, notes = _dependence(scores)
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
        notes=(*chosen.notes, *notes, *_wrong_way(scores)),
        threshold_rule=task.rule.name,
        threshold=chosen.threshold if np.isfinite(chosen.threshold) else None,
    )


def _read(
    estimator: CountEstimator,
    chosen: Chosen,
    task: _Task,
    *,
    assumptions: tuple[str, ...],
    notes: tuple[str, ...] = (),
    **details: Any,
) -> Bound:
    """The bound at a chosen threshold, with the counts it was read from."""
    if isinstance(estimator, GaussianDP):
        _check_gaussian_question(task.question, estimator.name)
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


def _from_gaussian_fit(scores: Scores, task: _Task) -> Bound:
    _check_gaussian_question(task.question, "gaussian-fit")
    dependence, notes = _dependence(scores)
    fit = fit_gaussian(scores.inserted_scores, scores.other_scores, significance=task.significance)
    mu = fit.mu
    if fit.rejected:
        # An assumption the scores contradict supports no number.
        mu, notes = 0.0, (f"nothing can be claimed: {' and '.join(fit.rejected)}", *notes)
    elif fit.normality_p_value is None:
        notes = (f"normality not checked: fewer than {FEWEST_TO_CHECK} scores of a kind", *notes)
    else:
        notes = (f"normality not rejected (p = {fit.normality_p_value:.3g})", *notes)
    if mu == 0 and not fit.rejected:
        notes = ("nothing can be claimed: the means do not differ beyond chance", *notes)
    return task.bound(
        "gaussian-fit",
        GaussianDP().answer(mu, task.question),
        sample_size=len(scores),
        assumptions=(*GAUSSIAN_SCORES, *dependence),
        notes=(*notes, *_wrong_way(scores)),
        mu_estimate=fit.estimate,
        normality_p_value=fit.normality_p_value,
        equal_variance_p_value=fit.equal_variance_p_value,
    )


def _from_profile(scores: Scores, task: _Task) -> Bound:
    dependence, notes = _dependence(scores)
    curve = proven_curve(scores, confidence=task.confidence)
    if isinstance(task.question, AtDelta):
        value = curve.epsilon_at(task.question.delta)
    else:
        value = float(curve.delta_at(task.question.epsilon))
    if value == 0:
        notes = ("nothing can be claimed: the band touches the line of no leak", *notes)
    return task.bound(
        "profile",
        Answer(value=value),
        sample_size=curve.sample_size,
        assumptions=dependence,
        notes=(*notes, *_wrong_way(scores)),
        **curve.to_dict(),
    )


def _from_one_run(scores: Scores, method: str, task: _Task) -> Bound:
    """Steinke's or Mahloujifar's bound on all canaries as those of one mechanism.

    Several runs, each with canaries of its own, are together one mechanism that is as private in
    each canary as a single run is, so the theorems hold for all rows at once.
    """
    if len(scores) < 2:
        raise InvalidScores(f"{method} needs at least 2 canaries, got {len(scores)}; insert more")
    pilot, rest = _pilot_rows(len(scores), task.pilot)
    pilot_scores, pilot_coins = scores.score[pilot], scores.inserted[pilot].astype(int)
    remaining, assumptions = len(rest), [FAIR_COINS]
    # The search for a plan may use any question of the same kind; validity rests on the rest.
    delta = task.question.delta if isinstance(task.question, AtDelta) else 0.0
    if method == "one-run":
        plan = choose_guesses(
            pilot_scores, pilot_coins, remaining, delta=delta, significance=task.significance
        )
    else:
        _check_gaussian_question(task.question, method)
        assumptions.append(GAUSSIAN_TRADE_OFF)
        plan = choose_gaussian_guesses(
            pilot_scores, pilot_coins, remaining, significance=task.significance
        )
    correct, guesses = count_guesses(
        scores.score[rest], scores.inserted[rest].astype(int), plan.top, plan.bottom
    )
    if method == "one-run-fdp":
        mu = one_run_gaussian_mu(correct, guesses, remaining, significance=task.significance)
        answer = GaussianDP().answer(mu, task.question)
    elif isinstance(task.question, AtDelta):
        answer = Answer(
            value=one_run_epsilon(
                correct, guesses, remaining, delta=delta, significance=task.significance
            )
        )
    else:
        answer = Answer(
            value=one_run_delta(
                correct,
                guesses,
                remaining,
                epsilon=task.question.epsilon,
                significance=task.significance,
            )
        )
    return task.bound(
        method,
        answer,
        sample_size=remaining,
        assumptions=tuple(assumptions),
        notes=(
            f"{correct} of {guesses} guesses right, {remaining - guesses} canaries abstained on",
            *_wrong_way(scores),
        ),
        correct=correct,
        guesses=guesses,
    )


def _pilot_rows(size: int, pilot: Pilot) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows drawn without looking at the coins: which coins are revealed must not depend on them."""
    order = np.random.default_rng(pilot.seed).permutation(size)
    share = min(max(1, round(pilot.share * size)), size - 1)
    return np.sort(order[:share]), np.sort(order[share:])


def _dependence(scores: Scores) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The assumption that many canaries in one run bring, and a note on how true it looks."""
    if not scores.clustered:
        return (), ()
    return (INDEPENDENT_CANARIES,), (within_run_dependence(scores).sentence,)


def _wrong_way(scores: Scores) -> tuple[str, ...]:
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
