"""One run of a user's training: its scores, or the failure with its traceback."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.coins import inserted_in, training_seed
from dpaudit.trainings.coverage import collecting
from dpaudit.trainings.scoring import Kind, Scorer, UnscorableReturn

Coins = NDArray[np.bool_]
Train = Callable[[Any, Any, int], Any]


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides the result of a run.

    Arguments:
        train: The user's training function.
        scorer: The adversary.
        seed: Random seed of the audit.
    """

    train: Train
    scorer: Scorer
    seed: int

    @property
    def held(self) -> dict[str, Any]:
        """What decides the scores beside the training, by name."""
        scorer = self.scorer
        own = {"adversary": scorer.adversary} if callable(scorer.adversary) else {}
        return {"canary": scorer.canary, "initial": scorer.initial, **own}

    def coins(self, run: int) -> Coins:
        """Which canaries are inserted in this run."""
        return inserted_in(run, canaries=self.scorer.canaries, seed=self.seed)

    def returned(self, run: int, coins: Coins) -> Any:
        """What the training returns with the seed of this run, and these canaries inserted."""
        inserted = coins if self.scorer.canaries > 1 else bool(coins[0])
        return self.train(self.scorer.canary, inserted, training_seed(run, seed=self.seed))

    def play(self, run: int) -> ScoreBlock | Failure:
        """Train and score once. An exception of the training is a failure, never a score."""
        coins = self.coins(run)
        try:
            with collecting():  # the first trainings of the audit reported uncovered parameters
                _, scores = self.scorer.score(self.returned(run, coins))
        except UnscorableReturn:
            raise
        except (Exception, SystemExit) as error:  # sys.exit(0) must not end the audit as passed
            return self.failure(run, f"{type(error).__name__}: {error}", traceback_of(error))
        return self.block(run, scores)

    def block(self, run: int, scores: NDArray[np.float64]) -> ScoreBlock:
        """The scores of a run as the store keeps them."""
        coins = self.coins(run)
        return ScoreBlock(
            run=np.full(len(coins), run),
            canary=np.arange(len(coins)),
            horizon=np.zeros(len(coins), dtype=np.int64),
            inserted=coins,
            score=scores,
        )

    def failure(self, run: int, error: str, text: str = "") -> Failure:
        """A failed run as the store keeps it."""
        coins = self.coins(run)
        return Failure(
            run=run, inserted=int(coins.sum()), canaries=len(coins), error=error, traceback=text
        )

    def pinned(self, kind: Kind) -> Job:
        """The same job with the adversary that the first training decided on."""
        if kind == "own":
            return self
        return replace(self, scorer=replace(self.scorer, adversary=kind))


def traceback_of(error: BaseException) -> str:
    """The traceback of a failed training, from the user's code on."""
    frames, here = error.__traceback__, str(Path(__file__).parents[1]) + os.sep
    while frames and frames.tb_next and frames.tb_frame.f_code.co_filename.startswith(here):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
