"""Bounds from the scores themselves: a fit, a band, or guesses about the canaries of one run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.contract import Answer, AtDelta
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
from dpaudit.lower_bounds.task import (
    Task,
    check_gaussian_question,
    dependence_of,
    wrong_way,
)
from dpaudit.lower_bounds.thresholds import Pilot
from dpaudit.privacy import Bound
from dpaudit.scores import Scores

FAIR_COINS = "every canary was inserted by its own fair coin"


def from_gaussian_fit(scores: Scores, task: Task) -> Bound:
    """The bound from means and variances; none where the scores are not normal."""
    check_gaussian_question(task.question, "gaussian-fit")
    dependence, notes = dependence_of(scores)
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
        notes=(*notes, *wrong_way(scores)),
        mu_estimate=fit.estimate,
        normality_p_value=fit.normality_p_value,
        equal_variance_p_value=fit.equal_variance_p_value,
    )


def from_profile(scores: Scores, task: Task) -> Bound:
    """The bound from the whole proven curve."""
    dependence, notes = dependence_of(scores)
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
        notes=(*notes, *wrong_way(scores)),
        **curve.to_dict(),
    )


def from_one_run(scores: Scores, method: str, task: Task) -> Bound:
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
        check_gaussian_question(task.question, method)
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
            *wrong_way(scores),
        ),
        correct=correct,
        guesses=guesses,
    )


def _pilot_rows(size: int, pilot: Pilot) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows drawn without looking at the coins: which coins are revealed must not depend on them."""
    order = np.random.default_rng(pilot.seed).permutation(size)
    share = min(max(1, round(pilot.share * size)), size - 1)
    return np.sort(order[:share]), np.sort(order[share:])
