"""Testing the claim as runs finish: feed runs to an anytime-valid test in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.claims import Claim
from dpaudit.claims.anytime import AnytimeTest, anytime_bounds
from dpaudit.privacy import Bounds
from dpaudit.scores import Failure, Scores
from dpaudit.trainings.run import inserted_in


@final
class Watcher:
    """Feeds an anytime-valid test with runs in the order of their numbers.

    If the order in which processes finish decided, another number of workers could stop the audit
    elsewhere. A step is two runs of a single canary, or one run of several, each of which has a
    fair coin. Canaries with names have bets each, and the mean of their wealth decides.

    Arguments:
        claim: The claim that is tested.
        confidence: Confidence of the verdict.
        canaries: Canaries per run.
        seed: Random seed of the audit, which decides in which runs the canary is.
        names: The names of the canaries, if they are tested one by one.
        together: Whether the canaries of a run may depend on each other.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        confidence: float,
        canaries: int,
        seed: int,
        names: Sequence[str] = (),
        together: bool = False,
    ) -> None:
        self.test = AnytimeTest(
            claim,
            confidence=confidence,
            names=names,
            canaries=1 if names else canaries,
            together=together,
        )
        self._canaries, self._seed = canaries, seed
        self._waiting: dict[int, Array | None] = {}
        self._runs = 0

    @property
    def refuted(self) -> bool:
        """Whether a violation is proven."""
        return self.test.refuted

    @property
    def runs(self) -> int:
        """Number of runs that the test has used; runs that wait for their pair do not count."""
        return self._runs

    def see_all(self, scores: Scores, failures: Sequence[Failure]) -> None:
        """Feed the runs of a stored audit."""
        order = np.argsort(scores.run, kind="stable")
        runs, starts = np.unique(scores.run[order], return_index=True)
        for run, start, end in zip(runs, starts, np.append(starts, len(order))[1:], strict=True):
            self.see(int(run), scores.score[order[start:end]])
        for failure in failures:
            self.see(failure.run, None)

    def see(self, run: int, scores: Array | None) -> None:
        """Feed one finished run; `None` means that it failed, and counts as lowest scores."""
        self._waiting[run] = scores
        together = 2 if self._canaries == 1 else 1
        while not self.refuted and all(
            self._runs + offset in self._waiting for offset in range(together)
        ):
            self._take([self._runs + offset for offset in range(together)])

    def _take(self, runs: list[int]) -> None:
        coins = np.concatenate(
            [inserted_in(run, canaries=self._canaries, seed=self._seed) for run in runs]
        )
        values = np.concatenate([self._scores(run) for run in runs])
        if self._canaries == 1:
            self.test.add(values[coins], values[~coins])
        else:
            self.test.add_coins(values, coins)
        self._runs += len(runs)

    def _scores(self, run: int) -> Array:
        scores = self._waiting.pop(run)
        return np.full(self._canaries, -np.inf) if scores is None else scores

    def bounds(self, delta: float, *, confidence: float) -> Bounds:
        """Lower bounds from the runs so far, valid although the scores decided when to stop.

        Arguments:
            delta: Delta at which epsilon is bounded.
            confidence: Confidence of each bound; that of the test only decided when to stop.
        """
        return anytime_bounds(self.test, delta=delta, confidence=confidence)
