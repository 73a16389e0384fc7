"""One run of a user's training: its scores, or the failure as an output.

An exception of the training is a failure with its traceback, never a score.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._validate import said
from dpaudit.errors import UnscorableReturn
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.coins import Coins, inserted_in, training_seed
from dpaudit.trainings.scoring import Kind, Scorer

Train = Callable[[Any, Any, int], Any]


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides the result of a run."""

    train: Train
    scorer: Scorer
    seed: int

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
            return self.failure(run, error)
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

    def failure(self, run: int, error: BaseException) -> Failure:
        """A failed run as the store keeps it."""
        text = traceback_of(error)
        return failed_run(run, self.seed, self.scorer.canaries, said(error), text)

    def pinned(self, kind: Kind) -> Job:
        """The same job with the adversary that the first training decided on."""
        if kind == "own":
            return self
        return replace(self, scorer=replace(self.scorer, adversary=kind))


def failed_run(run: int, seed: int, canaries: int, error: str, traceback: str = "") -> Failure:
    """A failed run as the store keeps it, also if its process has ended."""
    inserted = int(inserted_in(run, canaries=canaries, seed=seed).sum())
    return Failure(run=run, inserted=inserted, canaries=canaries, error=error, traceback=traceback)


def traceback_of(error: BaseException) -> str:
    """The traceback of a failed training, from the user's code on."""
    frames, here = error.__traceback__, str(Path(__file__).parents[1]) + os.sep
    while frames and frames.tb_next and frames.tb_frame.f_code.co_filename.startswith(here):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


# Changes of parameters that no canary tests, because they are made outside a private optimizer. An
# integration sees them while a training runs and reports them; an audit collects the reports of its
# first trainings: it cannot call a training consistent if part of it has no privacy.

_collected: ContextVar[dict[str, None] | None] = ContextVar("collected", default=None)
_beginnings: ContextVar[Beginnings | None] = ContextVar("beginnings", default=None)


class UncoveredParameters(UserWarning):
    """Parameters are changed outside the private optimizer."""


@contextmanager
def collecting() -> Iterator[dict[str, None]]:
    """Collect the reports, as sentences in their order, instead of warning about them."""
    collected: dict[str, None] = {}
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


@final
@dataclass(kw_only=True)
class Beginnings:
    """What integrations report of the trainings' beginnings: each has the sizes of its tensors.

    Arguments:
        starts: Norms of the parameters before the first step.
        batches: Of the first batch: norms of its gradients, or numbers of its examples.
    """

    starts: list[Sequence[float]] = field(default_factory=list)
    batches: list[Sequence[float]] = field(default_factory=list)

    @staticmethod
    def differ(values: Sequence[Sequence[float]]) -> bool:
        """Whether these differ by more than rounding on a GPU does."""
        return any(
            len(own) != len(values[0]) or not np.allclose(own, values[0], rtol=1e-3)
            for own in values
        )


@contextmanager
def collecting_beginnings() -> Iterator[Beginnings]:
    """Collect what integrations report of the beginnings of trainings."""
    beginnings = Beginnings()
    token = _beginnings.set(beginnings)
    try:
        yield beginnings
    finally:
        _beginnings.reset(token)


def report_start(sizes: Sequence[float]) -> None:
    """Report the norms of the parameters from which a training starts."""
    beginnings = _beginnings.get()
    if beginnings is not None:
        beginnings.starts.append(sizes)


def report_batch(sizes: Sequence[float]) -> None:
    """Report the norms of the gradients of a training's first batch, or its examples' numbers."""
    beginnings = _beginnings.get()
    if beginnings is not None:
        beginnings.batches.append(sizes)


def report_uncovered(names: Sequence[str]) -> None:
    """Report parameters that changed and that the private optimizer does not train."""
    if names:
        shown = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
        _report(
            f"The private optimizer does not train {shown}, but the training changes them: they "
            "have neither clipping nor noise, and no canary tests them. Freeze them, or give them "
            "to the private optimizer."
        )


def report_change_between_steps() -> None:
    """Report that the training changed private parameters between two private steps."""
    _report(
        "Between the steps of the private optimizer, the training changes the parameters that it "
        "trains. No canary tests these changes: if they use gradients or losses of the data, they "
        "have neither clipping nor noise. Make them after training, or audit the noisy gradients "
        "without them."
    )


def _report(sentence: str) -> None:
    collected = _collected.get()
    if collected is not None:
        collected[sentence] = None
    else:
        warnings.warn(sentence, UncoveredParameters, stacklevel=4)
