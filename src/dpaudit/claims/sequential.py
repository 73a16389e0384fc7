r"""Test of a claim that may be looked at after every pair of runs.

Wealth is bet against the claim, one pair of runs at a time. If the claim is true, no bet has an
expected gain above 1 (`dpaudit.claims.bets` has the proof), so the wealth :math:`W_k` after
:math:`k` pairs is a non-negative supermartingale that starts at :math:`W_0 = 1`: an e-process. By
Ville's inequality it *ever* reaches :math:`1/\gamma` with probability at most :math:`\gamma`.
Reaching it refutes the claim at confidence :math:`1-\gamma`, at any stopping time.

Half of the wealth starts with single bets and half with a portfolio over thresholds
(`dpaudit.claims.strategies`); an average of e-processes is an e-process. Bets may depend on
everything seen before the pair. Nothing is assumed about the scores, nor that they have the same
distribution in every run: only that each run satisfies the claim given the runs before it.

References:
    Ville: *Étude critique de la notion de collectif* (1939).
    Cover: *An algorithm for maximizing expected log investment return* (1984), for the portfolio.
    Wasserman, Ramdas, Balakrishnan: *Universal inference* (PNAS 2020), an alternative that needs
    a pilot and loses :math:`\log n` by not knowing the rates.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.claims.bets import Bets
from dpaudit.claims.claim import Claim
from dpaudit.claims.strategies import Portfolio, SingleBets, Strategy
from dpaudit.errors import InvalidScores


@final
class AnytimeTest:
    """A test of a claim that is valid after every pair of scores.

    See also: `dpaudit.test_claim`, for a number of runs that is fixed beforehand. It needs fewer
    runs if that number is close to the smallest one that suffices.

    Arguments:
        claim: The claim to test.
        confidence: One minus the probability that a true claim is ever refuted.
        bets: The bets against the claim, if they were computed before.

    Example:
        >>> random = np.random.default_rng(0)
        >>> test = AnytimeTest(Claim.from_mu(1.0))
        >>> test.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> test.refuted, test.refuted_at
        (True, 9)
        >>> true = AnytimeTest(Claim.from_mu(3.0))
        >>> true.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> true.refuted
        False
    """

    def __init__(self, claim: Claim, *, confidence: float = 0.95, bets: Bets | None = None) -> None:
        self.claim = claim
        self.confidence = _validate.confidence(confidence)
        self._goal = -math.log(1 - self.confidence)
        bets = Bets.against(claim) if bets is None else bets
        self._strategies: tuple[Strategy, ...] = (SingleBets(bets), Portfolio(bets))
        singles = len(SingleBets.CAUTIONS)
        # Logarithms: the wealth of each account, of all together, and the largest so far.
        self._wealth = np.log([0.5 / singles] * singles + [0.5])
        self._wealth_now = self._largest = 0.0
        self._inserted: Array = np.empty(0)
        self._others: Array = np.empty(0)
        self._next_choice = 1
        self._refuted_at: int | None = None

    @property
    def pairs(self) -> int:
        """Number of pairs seen."""
        return len(self._inserted)

    @property
    def e_value(self) -> float:
        """The wealth now. Its expectation is at most 1 if the claim is true, at any stopping time.

        The product of the e-values of independent audits is again an e-value.
        """
        return math.exp(min(self._wealth_now, 700.0))

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value: one over the largest wealth so far."""
        return math.exp(-min(self._largest, 700.0))

    @property
    def refuted_at(self) -> int | None:
        """The pair after which the claim was refuted; `None` if it is not."""
        return self._refuted_at

    @property
    def refuted(self) -> bool:
        """Whether the claim was refuted at any of the pairs."""
        return self._refuted_at is not None

    def add(self, inserted: ArrayLike, others: ArrayLike) -> None:
        """Add pairs in the order in which they were observed.

        Arguments:
            inserted: Scores with the canary. A failed run has the score minus infinity: it is never
                above a threshold, and no threshold is chosen from it.
            others: Scores without the canary, one for each of ``inserted``.
        """
        new_inserted = np.atleast_1d(np.asarray(inserted, dtype=float))
        new_others = np.atleast_1d(np.asarray(others, dtype=float))
        if new_inserted.shape != new_others.shape:
            raise InvalidScores(
                "pairs need as many scores with the canary as without it, got "
                f"{new_inserted.size} and {new_others.size}; leave out the run without a partner"
            )
        start, end = self.pairs, self.pairs + len(new_inserted)
        self._inserted = np.concatenate([self._inserted, new_inserted])
        self._others = np.concatenate([self._others, new_others])
        while start < end:
            if start >= self._next_choice:
                for strategy in self._strategies:
                    strategy.choose(self._inserted[:start], self._others[:start])
                # After every pair at first, then whenever a quarter more was seen.
                self._next_choice = start + 1 + start // 4
            stop = min(end, max(self._next_choice, start + 1))
            self._settle(start, stop)
            start = stop

    def _settle(self, start: int, stop: int) -> None:
        """Pay the bets on some pairs, and record whether the goal was reached at any of them."""
        pairs = self._inserted[start:stop], self._others[start:stop]
        gains = np.concatenate([each.gains(*pairs) for each in self._strategies], axis=1)
        path = self._wealth + np.cumsum(gains, axis=0)
        self._wealth = path[-1]
        together = np.logaddexp.reduce(path, axis=1)
        self._wealth_now = float(together[-1])
        self._largest = max(self._largest, float(together.max()))
        if self._refuted_at is None and self._largest >= self._goal:
            self._refuted_at = start + int(np.argmax(together >= self._goal)) + 1


def pairs_to_refute(claim: Claim, *, confidence: float = 0.95, most: int = 20_000) -> int | None:
    """Number of pairs without any error that refute the claim; `None` if it exceeds ``most``.

    Example:
        >>> pairs_to_refute(Claim.from_mu(1.6))
        14
    """
    test = AnytimeTest(claim, confidence=confidence)
    while not test.refuted and test.pairs < most:
        more = min(max(64, test.pairs), most - test.pairs)
        test.add(np.ones(more), np.zeros(more))
    return test.refuted_at
