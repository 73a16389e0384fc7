"""Guesses about inserted canaries from the ranking of their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from dpaudit import _validate
from dpaudit.errors import InvalidInput, InvalidScores

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True)
class GuessPlan:
    """How many canaries to guess at each end of the ranking; the ones between are abstentions.

    Arguments:
        top: Number of highest scores guessed "inserted".
        bottom: Number of lowest scores guessed "not inserted".
    """

    top: int
    bottom: int


def count_guesses(
    scores: ArrayLike,
    inserted: ArrayLike,
    top: int,
    bottom: int,
    *,
    tie_break: np.random.Generator | None = None,
) -> tuple[int, int]:
    """Right guesses and guesses when the highest scores are called inserted, the lowest not.

    Canaries that tie at the edge of either group could be taken or left. Without ``tie_break``
    the least favourable of them are taken, so that the count is at most what any rule blind to
    the coins would give and the bound stays valid. With it they are taken at random, which is
    valid too, and better where scores take few values.

    The number of guesses never depends on the scores; the f-DP bound needs that.

    See also: :func:`dpaudit.lower_bounds.one_run.choose_guesses`.

    Arguments:
        scores: One score for each canary; higher means "inserted".
        inserted: The coins, 0 or 1, in the same order.
        top: Number of highest scores guessed "inserted".
        bottom: Number of lowest scores guessed "not inserted".
        tie_break: Source of randomness for ties; `None` takes the least favourable.

    Example:
        >>> count_guesses([0.1, 0.9, 0.8, 0.2, 0.5], [0, 1, 1, 1, 0], top=2, bottom=2)
        (3, 4)
        >>> count_guesses([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0], top=2, bottom=0)
        (0, 2)
    """
    scores, coins = _check_scores(scores, inserted)
    top, bottom = _validate.integer("top", top), _validate.integer("bottom", bottom)
    if top + bottom > scores.size:
        raise InvalidInput(
            f"top + bottom must be at most the number of canaries, {scores.size}, "
            f"got {top} + {bottom}; no canary can be guessed twice"
        )
    if tie_break is not None:
        shuffled = tie_break.permutation(scores.size)
        order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
        right = coins[order[:top]].sum() + (1 - coins[order[scores.size - bottom :]]).sum()
        return int(right), top + bottom
    right = _fewest_hits(-scores, coins, top) + _fewest_hits(scores, 1 - coins, bottom)
    return right, top + bottom


@final
@dataclass(frozen=True, kw_only=True)
class CandidatePlans:
    """Plans for the remaining canaries, and what the pilot predicts of each; arrays of one length.

    Arguments:
        top: Numbers of guesses "inserted".
        bottom: Numbers of guesses "not inserted".
        correct: Predicted numbers of right guesses.
        remaining: Number of canaries to guess among.
    """

    top: Ints
    bottom: Ints
    correct: Ints
    remaining: int

    @property
    def guesses(self) -> Ints:
        """Numbers of guesses."""
        return self.top + self.bottom


def candidate_plans(
    pilot_scores: ArrayLike, pilot_inserted: ArrayLike, remaining: int
) -> CandidatePlans:
    """Plans worth considering, with the right guesses the pilot predicts for the rest."""
    scores, coins = _check_scores(pilot_scores, pilot_inserted)
    remaining = _validate.integer("remaining", remaining)
    size = scores.size
    if size == 0 or remaining == 0:
        nothing = np.zeros(1, dtype=np.int64)
        return CandidatePlans(top=nothing, bottom=nothing, correct=nothing, remaining=remaining)
    # Shares grow geometrically: what matters is the order of magnitude of the number of guesses.
    ends = np.unique(np.r_[0, np.geomspace(1, size, 32).round(), size // 2]).astype(np.int64)
    right_top = _least_favourable(-scores, coins, ends)
    right_bottom = _least_favourable(scores, 1 - coins, ends)
    first, second = (
        grid.ravel() for grid in np.meshgrid(np.arange(ends.size), np.arange(ends.size))
    )
    fits = ends[first] + ends[second] <= size
    first, second = first[fits], second[fits]
    guesses = ends[first] + ends[second]
    right = right_top[first] + right_bottom[second]
    # Posterior median under Jeffreys' prior, not the raw share: one lucky guess at the very top of
    # a small pilot must not look like certainty.
    accuracy = betaincinv(right + 0.5, guesses - right + 0.5, 0.5)
    top, bottom = ends[first] * remaining // size, ends[second] * remaining // size
    correct = np.floor(accuracy * (top + bottom)).astype(np.int64)
    return CandidatePlans(top=top, bottom=bottom, correct=correct, remaining=remaining)


def best_plan(
    plans: CandidatePlans,
    ceilings: Array,
    refutes: Callable[[int, int, float], bool],
    bound: Callable[[int, int], float],
) -> GuessPlan:
    """The plan with the largest ``bound(correct, guesses)``.

    A bound costs dozens of tests, so most plans are never given one. ``ceilings`` are cheap
    numbers no smaller than the bounds: plans are tried from the highest ceiling down, until none
    that is left can win. And a plan that does not even refute the best value so far, by
    ``refutes(correct, guesses, value)``, is passed over.
    """
    best, winner = 0.0, None
    for index in np.argsort(-ceilings, kind="stable"):
        if ceilings[index] <= best:
            break
        correct, guesses = int(plans.correct[index]), int(plans.guesses[index])
        if not refutes(correct, guesses, best):
            continue
        value = bound(correct, guesses)
        if value > best:
            best, winner = value, index
    if winner is None:
        # The pilot promises nothing, but the rest is larger: a quarter at each end, near the 27 %
        # that shows a small shift best (Kelley 1939).
        return GuessPlan(top=plans.remaining // 4, bottom=plans.remaining // 4)
    return GuessPlan(top=int(plans.top[winner]), bottom=int(plans.bottom[winner]))


def _fewest_hits(keys: Array, hits: Ints, count: int) -> int:
    """`_least_favourable` for one count, without sorting."""
    if count == 0:
        return 0
    edge = np.partition(keys, count - 1)[count - 1]
    below = keys < edge
    missed_at_edge = int((hits[keys == edge] == 0).sum())
    return int(hits[below].sum()) + max(0, count - int(below.sum()) - missed_at_edge)


def _least_favourable(keys: Array, hits: Ints, counts: Ints) -> Ints:
    """Fewest hits among the ``counts`` smallest keys, over all ways to break ties."""
    # Within a tie the misses come first.
    order = np.lexsort((hits, keys))
    return np.asarray(np.r_[0, np.cumsum(hits[order])][counts], dtype=np.int64)


def _check_scores(scores: ArrayLike, inserted: ArrayLike) -> tuple[Array, Ints]:
    values = np.asarray(scores, dtype=float)
    coins = np.asarray(inserted)
    if values.ndim != 1 or values.shape != coins.shape:
        raise InvalidScores(
            "scores and inserted must be one-dimensional and of one length, "
            f"got shapes {values.shape} and {coins.shape}"
        )
    if np.isnan(values).any():
        raise InvalidScores(f"scores must not be NaN, {int(np.isnan(values).sum())} of them are")
    if not np.isin(coins, (0, 1)).all():
        raise InvalidScores("inserted must hold only 0 and 1")
    return values, coins.astype(np.int64)
