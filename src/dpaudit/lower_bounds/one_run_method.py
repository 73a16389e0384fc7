"""What the one-run methods share: a pilot plans the guesses, the other canaries are guessed."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.special import bdtr, gammaln

from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.base import ScoreMethod
from dpaudit.lower_bounds.evidence import wrong_way
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, count_guesses
from dpaudit.lower_bounds.questions import Answer
from dpaudit.lower_bounds.task import Task
from dpaudit.lower_bounds.thresholds import Pilot
from dpaudit.privacy import Bound
from dpaudit.scores import Scores

# A plan for more canaries is scaled up from one for so many.
MOST_PLANNED = 200_000
FAIR_COINS = "every canary was inserted by its own fair coin"


class OneRunMethod(ScoreMethod):
    """A bound from guesses about which canaries were inserted.

    Several runs, each with its own canaries, are together one mechanism that is as private in each
    canary as a single run, so the theorems apply to all rows at once.
    """

    @abstractmethod
    def plan(self, scores: Array, coins: Integers, remaining: int, task: Task) -> GuessPlan:
        """How many of the remaining canaries to guess, from the pilot's scores and coins."""

    @abstractmethod
    def answer(self, seen: Guesses, task: Task) -> Answer:
        """The bound from the guesses."""

    def from_scores(self, scores: Scores, task: Task) -> Bound:
        if len(scores) < 2:
            raise InvalidScores(
                f"{self.name} needs at least 2 canaries, got {len(scores)}; insert more"
            )
        check_fair_coins(scores, self.name)
        pilot, rest = _pilot_rows(len(scores), task.pilot)
        coins, remaining = scores.inserted.astype(np.int64), len(rest)
        planned = min(remaining, MOST_PLANNED)
        some = pilot[: MOST_PLANNED // 10]
        plan = self.plan(scores.score[some], coins[some], planned, task)
        if planned < remaining:
            top = plan.top * remaining // planned
            everything = plan.top + plan.bottom == planned
            bottom = remaining - top if everything else plan.bottom * remaining // planned
            plan = GuessPlan(top=top, bottom=bottom, cut=plan.cut)
        correct, guesses = count_guesses(
            scores.score[rest], coins[rest], plan, seed=task.pilot.seed
        )
        return task.bound(
            self.name,
            self.answer(Guesses(correct, guesses, remaining), task),
            sample_size=remaining,
            assumptions=self.assumptions,
            notes=(
                f"{correct} of {guesses} guesses right, {remaining - guesses} abstentions",
                *wrong_way(scores),
            ),
            correct=correct,
            guesses=guesses,
        )


# Levels of the two tests: fair coins are refused with at most these probabilities.
UNFAIR_BELOW = 0.001
HALF_BELOW = 0.05


def check_fair_coins(scores: Scores, method: str) -> None:
    """Refuse canaries that were hardly inserted by a fair coin each.

    An exact two-sided binomial test of the number inserted; and exactly half, in every run or
    over all canaries, where fair coins would seldom hit it. A refusal makes no claim, so a fair
    design loses the audit with that probability (2.5 % at 1,000 canaries) but no validity.
    """
    total, inserted = len(scores), int(scores.inserted.sum())
    chance = min(1.0, 2 * float(bdtr(min(inserted, total - inserted), total, 0.5)))
    if chance < UNFAIR_BELOW:
        raise InvalidScores(
            f"{method} needs canaries that were inserted by a fair coin each, and {inserted:,} of "
            f"{total:,} inserted has probability {chance:.1g} under fair coins; insert each canary "
            "with probability 1/2, or use clopper-pearson"
        )
    by_run, size = np.array([inserted]), np.array([total])
    if scores.clustered:
        _, run, size = np.unique(scores.run, return_inverse=True, return_counts=True)
        by_run = np.bincount(run, scores.inserted)
    # The logarithm of P(Binomial(size, 1/2) = size/2), summed over runs.
    half = gammaln(size + 1) - 2 * gammaln(size / 2 + 1) - size * np.log(2)
    if (2 * by_run == size).all() and half.sum() < np.log(HALF_BELOW):
        raise InvalidScores(
            f"{method} needs canaries that were inserted by a fair coin each, and exactly half "
            f"were ({inserted:,} of {total:,}), which fair coins give with probability "
            f"{np.exp(half.sum()):.1g}; flip a coin for each canary, or use clopper-pearson; an "
            "odd number of canaries never gives exactly half by chance"
        )


def _pilot_rows(size: int, pilot: Pilot) -> tuple[Integers, Integers]:
    """Rows of the pilot and of the rest, drawn without looking at the coins."""
    order = np.random.default_rng(pilot.seed).permutation(size)
    rows = order[: min(max(1, round(pilot.share * size)), size - 1)]
    rest = np.ones(size, dtype=bool)
    rest[rows] = False
    return rows, np.flatnonzero(rest)
