"""One training of an audit, and what came of it: scores, or a failure with its traceback."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInput
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.coins import inserted_in, training_seed
from dpaudit.trainings.scoring import Kind, Scorer, UnscorableReturn

Array = NDArray[np.float64]
Train = Callable[[Any, Any, int], Any]


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one run.

    Arguments:
        run: Its number.
        kind: The adversary that scored it; `None` if nothing could be scored.
        scores: One for each canary; `None` if the run failed.
        failure: Why it failed, otherwise `None`.
        unscorable: Whether training went well but returned what no adversary can score.
    """

    run: int
    kind: Kind | None = None
    scores: Array | None = None
    failure: Failure | None = None
    unscorable: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides what a run comes to.

    Arguments:
        train: The user's training.
        scorer: The adversary.
        seed: Of the audit.
    """

    train: Train
    scorer: Scorer
    seed: int

    def coins(self, run: int) -> NDArray[np.bool_]:
        """Which canaries are in this run."""
        return inserted_in(run, canaries=self.scorer.canaries, seed=self.seed)

    def play(self, run: int) -> Outcome:
        """Train once, and score; whatever the training raises is kept, and never a score."""
        coins = self.coins(run)
        inserted = coins if self.scorer.canaries > 1 else bool(coins[0])
        unscorable = False
        try:
            returned = self.train(self.scorer.canary, inserted, training_seed(run, seed=self.seed))
            kind, scores = self.scorer.score(returned)
        except (Exception, SystemExit) as error:  # sys.exit(0) must not look like an audit passed
            unscorable = isinstance(error, UnscorableReturn)
            failure = Failure(
                run=run,
                inserted=int(coins.sum()),
                canaries=len(coins),
                error=f"{type(error).__name__}: {error}",
                traceback="".join(traceback.format_exception(error)),
            )
            return Outcome(run=run, failure=failure, unscorable=unscorable)
        return Outcome(run=run, kind=kind, scores=scores)

    def block(self, outcome: Outcome) -> ScoreBlock:
        """The scores of a run as the store keeps them."""
        coins, scores = self.coins(outcome.run), outcome.scores
        if scores is None:
            raise InvalidInput(f"run {outcome.run} failed and has no scores")
        return ScoreBlock(
            run=np.full(len(coins), outcome.run),
            canary=np.arange(len(coins)),
            horizon=np.zeros(len(coins), dtype=np.int64),
            inserted=coins,
            score=scores,
        )

    def pinned(self, kind: Kind) -> Job:
        """The same job with the adversary that the first training settled."""
        if kind == "own":
            return self
        return replace(self, scorer=replace(self.scorer, adversary=kind))


def check_signature(train: object) -> None:
    """Refuse what cannot be called as ``train(canary, inserted, seed)``, before any training."""
    if not callable(train):
        raise InvalidInput(f"train must be a function of (canary, inserted, seed), got {train!r}")
    try:
        inspect.signature(train).bind(None, True, 0)
    except TypeError as error:
        raise InvalidInput(
            f"train is called as train(canary, inserted, seed), and {_name(train)} cannot be: "
            f"{error}"
        ) from None
    except ValueError:
        return  # a builtin that hides its signature


def _name(train: object) -> str:
    return getattr(train, "__qualname__", type(train).__name__)
