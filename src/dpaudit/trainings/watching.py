"""Looking at runs as they come: which pair is complete, and is the claim refuted yet?"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.claims import Claim, ClaimTest, Verdict
from dpaudit.claims.anytime_bounds import anytime_bounds
from dpaudit.claims.sequential import AnytimeTest, pairs_to_refute
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES
from dpaudit.privacy import Bounds
from dpaudit.trainings.coins import inserted_in

Array = NDArray[np.float64]


@final
class Watcher:
    """Feeds a test with the runs in the order of their numbers, however they come in.

    The order in which processes finish would otherwise decide where the audit stops. A pair is two
    runs of a single canary; of several canaries, one that is inserted and one that is not, of the
    same run.

    Arguments:
        claim: The promise.
        confidence: Of the verdict.
        canaries: How many each run has a coin for.
        seed: Of the audit: it says in which runs the canary is.
    """

    def __init__(self, claim: Claim, *, confidence: float, canaries: int, seed: int) -> None:
        self._test = AnytimeTest(claim, confidence=confidence)
        self._canaries, self._seed = canaries, seed
        self._waiting: dict[int, Array | None] = {}
        self._runs = 0
        self._inserted: list[Array] = []
        self._others: list[Array] = []

    @property
    def refuted(self) -> bool:
        """Whether a violation is proven."""
        return self._test.refuted

    @property
    def runs(self) -> int:
        """How many runs the test has seen; those that came early and still wait are not among."""
        return self._runs

    def see(self, run: int, scores: Array | None) -> None:
        """A run is done; without scores it failed, and is guessed 'not inserted'."""
        self._waiting[run] = scores
        together = 2 if self._canaries == 1 else 1
        while not self.refuted and all(
            self._runs + place in self._waiting for place in range(together)
        ):
            self._take([self._runs + place for place in range(together)])

    def _take(self, runs: list[int]) -> None:
        coins = np.concatenate(
            [inserted_in(run, canaries=self._canaries, seed=self._seed) for run in runs]
        )
        values = np.concatenate([self._scores(run) for run in runs])
        inserted, others = values[coins], values[~coins]
        pairs = min(len(inserted), len(others))
        self._test.add(inserted[:pairs], others[:pairs])
        self._inserted.append(inserted[:pairs])
        self._others.append(others[:pairs])
        self._runs += len(runs)

    def _scores(self, run: int) -> Array:
        scores = self._waiting.pop(run)
        return np.full(self._canaries, -np.inf) if scores is None else scores

    def test(self) -> ClaimTest:
        """What the bets say by now."""
        test, notes = self._test, [_VALID]
        verdict: Verdict = "consistent"
        needed = pairs_to_refute(test.claim, confidence=test.confidence, most=4 * test.pairs + 64)
        if test.refuted:
            verdict = "violation"
        elif needed is None or needed > test.pairs:
            verdict = "inconclusive"
            enough = f"more than {8 * test.pairs + 128:,}" if needed is None else f"{2 * needed:,}"
            notes.append(f"with no error at all it would take {enough} scores to refute this claim")
        return ClaimTest(
            verdict=verdict,
            p_value=test.p_value,
            e_value=test.e_value,
            claim=test.claim,
            confidence=test.confidence,
            sample_size=2 * test.pairs,
            assumptions=(*test.claim.assumptions, *self._assumptions),
            notes=tuple(notes),
        )

    def bounds(self, delta: float) -> Bounds:
        """What the pairs seen prove, valid although it was them that said when to stop."""
        none = [np.empty(0)]
        return anytime_bounds(
            np.concatenate(self._inserted or none),
            np.concatenate(self._others or none),
            delta=delta,
            confidence=self._test.confidence,
            assumptions=self._assumptions,
        )

    @property
    def _assumptions(self) -> tuple[str, ...]:
        return (INDEPENDENT_CANARIES,) if self._canaries > 1 else ()


_VALID = "the scores were looked at as they came; the test holds whenever one stops"
