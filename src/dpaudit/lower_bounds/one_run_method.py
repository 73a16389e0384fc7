"""What the one-run methods share: a pilot plans the guesses, the other canaries are guessed."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.base import ScoreMethod
from dpaudit.lower_bounds.evidence import wrong_way
from dpaudit.lower_bounds.guesses import GuessPlan, count_guesses
from dpaudit.lower_bounds.questions import Answer
from dpaudit.lower_bounds.task import Task
from dpaudit.lower_bounds.thresholds import Pilot
from dpaudit.privacy import Bound
from dpaudit.scores import Scores

FAIR_COINS = "every canary was inserted by its own fair coin"


class OneRunMethod(ScoreMethod):
    """A bound from guesses about which canaries were inserted.

    Several runs, each with its own canaries, are together one mechanism that is as private in each
    canary as a single run, so the theorems apply to all rows at once.
    """

    @abstractmethod
    def plan(
        self, scores: NDArray[np.float64], coins: NDArray[np.int64], remaining: int, task: Task
    ) -> GuessPlan:
        """How many of the remaining canaries to guess, from the pilot's scores and coins."""

    @abstractmethod
    def answer(self, correct: int, guesses: int, canaries: int, task: Task) -> Answer:
        """The bound from the number of correct guesses."""

    def from_scores(self, scores: Scores, task: Task) -> Bound:
        if len(scores) < 2:
            raise InvalidScores(
                f"{self.name} needs at least 2 canaries, got {len(scores)}; insert more"
            )
        pilot, rest = _pilot_rows(len(scores), task.pilot)
        coins, remaining = scores.inserted.astype(np.int64), len(rest)
        plan = self.plan(scores.score[pilot], coins[pilot], remaining, task)
        correct, guesses = count_guesses(scores.score[rest], coins[rest], plan.top, plan.bottom)
        return task.bound(
            self.name,
            self.answer(correct, guesses, remaining, task),
            sample_size=remaining,
            assumptions=self.assumptions,
            notes=(
                f"{correct} of {guesses} guesses right, {remaining - guesses} abstentions",
                *wrong_way(scores),
            ),
            correct=correct,
            guesses=guesses,
        )


def _pilot_rows(size: int, pilot: Pilot) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the pilot and of the rest, drawn without looking at the coins."""
    order = np.random.default_rng(pilot.seed).permutation(size)
    share = min(max(1, round(pilot.share * size)), size - 1)
    return np.sort(order[:share]), np.sort(order[share:])
