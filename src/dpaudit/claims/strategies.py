"""How the bets against a claim are chosen from the pairs seen so far.

A strategy chooses thresholds and bets before the next pairs are seen. What it then gains on a pair
is an average of bets, so its expectation is at most 1 if the claim is true.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np

from dpaudit._arrays import Array, Integers
from dpaudit.claims.bets import Bets
from dpaudit.lower_bounds.counts import ErrorCounts, midpoints


class Strategy(ABC):
    """Chooses bets from the pairs seen so far, and computes what they gain on the next ones.

    Arguments:
        bets: The bets to choose from.
    """

    def __init__(self, bets: Bets) -> None:
        self._bets = bets

    @abstractmethod
    def choose(self, inserted: Array, others: Array) -> None:
        """Choose bets for the next pairs from all pairs seen, of which there is at least one."""

    @abstractmethod
    def gains(self, inserted: Array, others: Array) -> Array:
        """Logarithm of the gain on each pair; shape (pairs, number of accounts)."""


@final
class SingleBets(Strategy):
    """One threshold and one bet per account: the pair with the largest expected logarithm.

    Arguments:
        bets: The bets to choose from.
    """

    # Errors added to those seen before predicting, one account each.
    CAUTIONS = (0.3, 1.0, 3.0)
    MOST_THRESHOLDS = 32

    def __init__(self, bets: Bets) -> None:
        super().__init__(bets)
        none = np.zeros((1, 4))
        self._payoffs = np.concatenate([none, bets.payoff.reshape(-1, 4)])
        self._payoff = np.zeros((len(self.CAUTIONS), 4))
        self._threshold = np.zeros(len(self.CAUTIONS))

    def choose(self, inserted: Array, others: Array) -> None:
        counts = _errors(inserted, others, self.MOST_THRESHOLDS)
        if len(counts) == 0:
            return
        for account, caution in enumerate(self.CAUTIONS):
            growth = _chances(counts, caution) @ self._payoffs.T
            place, bet = np.unravel_index(int(np.argmax(growth)), growth.shape)
            self._threshold[account] = counts.thresholds[place]
            self._payoff[account] = self._payoffs[bet]

    def gains(self, inserted: Array, others: Array) -> Array:
        false = others[:, None] > self._threshold
        above = inserted[:, None] > self._threshold
        return np.asarray(
            np.where(false, self._payoff[:, 1], self._payoff[:, 0])
            + np.where(above, self._payoff[:, 2], self._payoff[:, 3])
        )


@final
class Portfolio(Strategy):
    """A weighted average of bets at many thresholds, which uses more than one bit of each score.

    The weights maximise the mean logarithm of the gain on the pairs seen (the log-optimal portfolio
    of Cover 1984), found by his multiplicative updates, and are mixed with the weights of a
    cautious start.

    Arguments:
        bets: The bets to choose from.
    """

    THRESHOLDS = 16
    STAKES = (1, 3, 5, 7)  # indices into `dpaudit.claims.bets.SHARES`
    # Few updates, and a start that counts as 20 pairs and bets half: both prevent overfitting.
    _UPDATES = 15
    _START = 20.0

    def __init__(self, bets: Bets) -> None:
        super().__init__(bets)
        self._cuts: Array = np.empty(0)
        self._table: Array = np.zeros((1, 1))

    def choose(self, inserted: Array, others: Array) -> None:
        counts = _errors(inserted, others, self.THRESHOLDS)
        if len(counts) == 0 or len(self._bets.payoff) == 0:
            return
        growth = np.einsum("tc,lsc->tls", _chances(counts, 1.0), self._bets.payoff)
        line = growth.max(axis=2).argmax(axis=1)
        payoff = np.exp(self._bets.payoff[line][:, list(self.STAKES)])
        self._cuts = counts.thresholds
        cells = len(self._cuts) + 1
        # All that counts of a score is how many cuts it exceeds.
        exceeded = np.arange(cells)[:, None, None] > np.arange(len(self._cuts))[:, None]
        without = np.where(exceeded, payoff[..., 1], payoff[..., 0]).reshape(cells, -1)
        with_canary = np.where(exceeded, payoff[..., 2], payoff[..., 3]).reshape(cells, -1)
        gain = (with_canary[:, None] * without[None]).reshape(cells * cells, -1)
        gain = np.concatenate([np.ones((len(gain), 1)), gain], axis=1)
        place = self._cell(inserted, others)
        seen, times = np.unique(place, return_counts=True)
        weights = self._weights(gain[seen], times / len(place), len(place))
        self._table = np.log(gain @ weights).reshape(cells, cells)

    def gains(self, inserted: Array, others: Array) -> Array:
        return np.asarray(self._table.ravel()[self._cell(inserted, others)][:, None])

    def _cell(self, inserted: Array, others: Array) -> Integers:
        high, low = (np.searchsorted(self._cuts, x, side="left") for x in (inserted, others))
        return np.asarray(high * (len(self._cuts) + 1) + low)

    def _weights(self, gain: Array, share: Array, pairs: int) -> Array:
        start = np.full(gain.shape[1], 0.5 / (gain.shape[1] - 1))
        start[0] = 0.5
        weights = start
        for _ in range(self._UPDATES):
            weights = weights * ((share / (gain @ weights)) @ gain)
        return np.asarray((pairs * weights + self._START * start) / (pairs + self._START))


def _errors(inserted: Array, others: Array, most: int) -> ErrorCounts:
    """Errors at evenly spread thresholds, and at the one with the fewest errors."""
    distinct = np.unique(np.concatenate([inserted, others]))
    counts = ErrorCounts.at(inserted, others, midpoints(distinct[np.isfinite(distinct)]))
    if len(counts) <= most:
        return counts
    spread = ((np.arange(most) + 0.5) * len(counts) / most).astype(np.int64)
    best = int(np.argmin(counts.false_positives + counts.false_negatives))
    return counts[np.union1d(spread, [best])]


def _chances(counts: ErrorCounts, caution: float) -> Array:
    """Predicted probabilities of the four outcomes of `Bets`, one row per threshold."""
    alpha = (counts.false_positives + caution) / (counts.negatives + 2 * caution)
    beta = (counts.false_negatives + caution) / (counts.positives + 2 * caution)
    return np.stack([1 - alpha, alpha, 1 - beta, beta], axis=1)
