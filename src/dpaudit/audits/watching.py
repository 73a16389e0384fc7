"""The test of an audit that may stop as soon as a violation is proven."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.audits.identity import Description
from dpaudit.claims import Claim, Policy
from dpaudit.claims.anytime import AnytimeTest
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.coins import inserted_in


@final
class Watcher:
    """Feeds an anytime-valid test with runs in the order of their numbers.

    If the order in which processes finish decided, another number of workers could stop the audit
    elsewhere. A step is two runs, one with and one without the canary; or one run, each of whose
    canaries has a fair coin. Canaries with names have bets each, and the mean of their wealth
    decides.
    """

    def __init__(self, description: Description, claim: Claim, policy: Policy) -> None:
        names, canaries = description.names, description.canaries
        self.test = AnytimeTest(
            claim,
            confidence=1 - policy.prove,
            names=names,
            canaries=1 if names else canaries,
            together=not claim.mechanism,
        )
        self._paired = description.coin == "half"
        self._canaries, self._seed = canaries, description.sample(0).seed
        self._waiting: dict[int, tuple[Array, NDArray[np.bool_]]] = {}
        self.runs = 0
        """Number of runs that the test has used; runs that wait for their pair do not count."""

    @property
    def refuted(self) -> bool:
        """Whether a violation is proven."""
        return self.test.refuted

    def see(self, result: ScoreBlock | Failure) -> None:
        """Feed a finished tile. A failed run counts as lowest scores."""
        if isinstance(result, Failure):
            coins = inserted_in(result.run, canaries=self._canaries, seed=self._seed)
            self._waiting[result.run] = np.full(self._canaries, -np.inf), coins
        else:
            last = result.horizon == result.horizon.max()
            for run in np.unique(result.run).tolist():
                rows = last & (result.run == run)
                self._waiting[run] = result.score[rows], result.inserted[rows]
        together = 2 if self._paired else 1
        while not self.refuted and all(self.runs + i in self._waiting for i in range(together)):
            runs = [self._waiting.pop(self.runs + i) for i in range(together)]
            scores = np.concatenate([score for score, _ in runs])
            coins = np.concatenate([coin for _, coin in runs]).astype(bool)
            if self._paired:
                self.test.add(scores[coins], scores[~coins])
            else:
                self.test.add_coins(scores, coins)
            self.runs += together
