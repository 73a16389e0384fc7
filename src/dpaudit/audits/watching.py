"""Testing the claim as runs finish: feed complete pairs of runs to an anytime-valid test."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.audits.tensors import combined, corrected
from dpaudit.claims import Claim, ClaimTest
from dpaudit.claims.anytime_bounds import anytime_bounds
from dpaudit.claims.sequential import AnytimeTest, pairs_to_refute
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES
from dpaudit.privacy import Bounds
from dpaudit.scores import Failure, Scores
from dpaudit.trainings.coins import inserted_in

_VALID = "the scores were tested as they came; the test is valid whenever the audit stops"


@final
class Watcher:
    """Feeds an anytime-valid test with runs in the order of their numbers.

    If the order in which processes finish decided, another number of workers could stop the audit
    elsewhere. A pair is two runs of a single canary; with several canaries, it is one that is
    inserted and one that is not, of the same run. Canaries with names have a test each, of pairs
    of runs with and without that canary.

    Arguments:
        claim: The claim that is tested.
        confidence: Confidence of the verdict.
        canaries: Canaries per run.
        seed: Random seed of the audit, which decides in which runs the canary is.
        names: The names of the canaries, if they are tested one by one.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        confidence: float,
        canaries: int,
        seed: int,
        names: Sequence[str] = (),
    ) -> None:
        self._claim, self._confidence, self._names = claim, confidence, tuple(names)
        self._canaries, self._seed = canaries, seed
        level = corrected(confidence, len(self._names))
        self._streams = [_Stream(AnytimeTest(claim, confidence=level)) for _ in self._names or "1"]
        self._waiting: dict[int, Array | None] = {}
        self._runs = 0

    @property
    def refuted(self) -> bool:
        """Whether a violation is proven."""
        return any(stream.test.refuted for stream in self._streams)

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
        if len(self._streams) == 1:
            pairs = min(coins.sum(), (~coins).sum())
            self._streams[0].add(values[coins][:pairs], values[~coins][:pairs])
        else:
            for stream, value, coin in zip(self._streams, values, coins, strict=True):
                stream.queue(value, coin)
        self._runs += len(runs)

    def _scores(self, run: int) -> Array:
        scores = self._waiting.pop(run)
        return np.full(self._canaries, -np.inf) if scores is None else scores

    def tests(self) -> dict[str, ClaimTest]:
        """The result of the test of each canary so far, by name; empty without names."""
        found = [self._result(stream.test) for stream in self._streams]
        return dict(zip(self._names, found, strict=True)) if self._names else {}

    def test(self) -> ClaimTest:
        """The result of all tests so far."""
        if self._names:
            return combined(self.tests(), self._confidence)
        return self._result(self._streams[0].test)

    def _result(self, test: AnytimeTest) -> ClaimTest:
        notes = [_VALID]
        verdict: str = "consistent"
        needed = pairs_to_refute(test.claim, confidence=test.confidence, most=4 * test.pairs + 64)
        if test.refuted:
            verdict = "violation"
        elif needed is None or needed > test.pairs:
            verdict = "inconclusive"
            enough = f"more than {8 * test.pairs + 128:,}" if needed is None else f"{2 * needed:,}"
            notes.append(f"even without any error, refuting this claim takes {enough} scores")
        return ClaimTest(
            verdict=verdict,  # type: ignore[arg-type]
            p_value=test.p_value,
            e_value=test.e_value,
            claim=test.claim,
            confidence=test.confidence,
            sample_size=2 * test.pairs,
            assumptions=(*test.claim.assumptions, *self._assumptions),
            notes=tuple(notes),
        )

    def bounds(self, delta: float, *, confidence: float) -> Bounds:
        """Lower bounds from the pairs so far, valid although the scores decided when to stop.

        Arguments:
            delta: Delta at which epsilon is bounded.
            confidence: Confidence of each bound; that of the test only decided when to stop.
        """
        none = [np.empty(0)]
        return anytime_bounds(
            np.concatenate([one for stream in self._streams for one in stream.inserted] or none),
            np.concatenate([one for stream in self._streams for one in stream.others] or none),
            delta=delta,
            confidence=confidence,
            assumptions=(INDEPENDENT_CANARIES,) if self._canaries > 1 else (),
        )

    @property
    def _assumptions(self) -> tuple[str, ...]:
        return (INDEPENDENT_CANARIES,) if self._canaries > 1 and not self._names else ()


@final
@dataclass(eq=False)
class _Stream:
    """One anytime-valid test, and the pairs that it has seen."""

    test: AnytimeTest
    inserted: list[Array] = field(default_factory=list)
    others: list[Array] = field(default_factory=list)
    _waiting: tuple[deque[float], deque[float]] = field(default_factory=lambda: (deque(), deque()))

    def add(self, inserted: Array, others: Array) -> None:
        self.test.add(inserted, others)
        self.inserted.append(inserted)
        self.others.append(others)

    def queue(self, value: float, coin: bool) -> None:
        """Keep a score until there is one with and one without the canary."""
        self._waiting[int(coin)].append(value)
        without, having = self._waiting
        if without and having:
            self.add(np.array([having.popleft()]), np.array([without.popleft()]))
