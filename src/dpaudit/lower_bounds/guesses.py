"""Guesses about which canaries of one run were inserted, from the ranking of their scores.

A pilot of random canaries plans how many of the others to guess; `one_run` and
`one_run_independent` say what correct guesses prove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincinv, gammaln

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import midpoints
from dpaudit.lower_bounds.selection import Pilot
from dpaudit.scores.table import Scores, labels, numbers


@final
@dataclass(frozen=True, kw_only=True)
class GuessPlan:
    """How many canaries to guess at each end of the ranking; no guess is made on the others.

    Arguments:
        top: Number of highest scores guessed "inserted".
        bottom: Number of lowest scores guessed "not inserted".
        cut: Used if every canary is guessed: scores above the cut are guessed "inserted" and the
            others "not inserted", so that equal scores are guessed together. The number of guesses
            is the same.
    """

    top: int
    bottom: int
    cut: float | None = None


@final
@dataclass(frozen=True)
class Guesses:
    """How the guesses about the canaries of one run turned out.

    Arguments:
        correct: Number of correct guesses.
        guesses: Number of guesses.
        canaries: Number of canaries, abstentions included.
    """

    correct: int
    guesses: int
    canaries: int

    def __post_init__(self) -> None:
        for name in ("canaries", "guesses", "correct"):
            object.__setattr__(self, name, _validate.integer(name, getattr(self, name)))
        if not self.correct <= self.guesses <= self.canaries:
            raise InvalidScores(
                "counts must satisfy correct <= guesses <= canaries, "
                f"got {self.correct}, {self.guesses} and {self.canaries}"
            )


def count_guesses(
    scores: ArrayLike, inserted: ArrayLike, plan: GuessPlan, *, seed: int = 0
) -> tuple[int, int]:
    """Number of correct guesses and number of guesses when a plan is followed.

    If only some of several equal scores are to be guessed, they are drawn at random. The number of
    guesses does not depend on the scores, as the theorems require.

    See also: `dpaudit.lower_bounds.one_run.plan_for`, which makes the plan.

    Example:
        >>> plan = GuessPlan(top=2, bottom=2)
        >>> count_guesses([0.1, 0.9, 0.8, 0.2, 0.5], [0, 1, 1, 1, 0], plan)
        (3, 4)
    """
    scores, coins = _check_scores(scores, inserted)
    top, bottom = _validate.integer("top", plan.top), _validate.integer("bottom", plan.bottom)
    if top + bottom > scores.size:
        raise InvalidInput(
            f"top + bottom must be at most the number of canaries, {scores.size}, "
            f"got {top} + {bottom}; no canary can be guessed twice"
        )
    if plan.cut is not None and top + bottom == scores.size:
        return int(((scores > plan.cut) == coins).sum()), scores.size
    random = np.random.default_rng(seed)
    right, edge, drawn = 0, np.nan, (0, 0)
    if top:
        edge = np.partition(scores, scores.size - top)[scores.size - top]
        right, drawn = _hits(scores > edge, scores == edge, coins, top, (0, 0), random)
    if bottom:
        last = np.partition(scores, bottom - 1)[bottom - 1]
        # Scores equal to those at the top's end must not be guessed twice.
        taken = (drawn[1], drawn[0]) if last == edge else (0, 0)
        right += _hits(scores < last, scores == last, 1 - coins, bottom, taken, random)[0]
    return right, top + bottom


# A plan for more canaries is scaled up from one for so many.
MOST_PLANNED = 200_000

Planner = Callable[[Array, Integers, int], GuessPlan]
"""How many of the remaining canaries to guess, from the pilot's scores and coins."""


def guessed(scores: Scores, planner: Planner, pilot: Pilot) -> Guesses:
    """How the guesses turn out that a pilot plans for the other canaries.

    Several runs, each with its own canaries, are together one mechanism that is as private in each
    canary as a single run, so all rows count as one run. The pilot is drawn without looking at the
    coins, and its canaries are not guessed.
    """
    if len(scores) < 2:
        raise InvalidScores(
            f"one-run methods need at least 2 canaries, got {len(scores)}; insert more"
        )
    check_fair_coins(scores)
    size, seed = len(scores), pilot.seed
    order = np.random.default_rng(seed).permutation(size)
    rows = order[: min(max(1, round(pilot.share * size)), size - 1)]
    is_rest = np.ones(size, dtype=bool)
    is_rest[rows] = False
    rest, coins = np.flatnonzero(is_rest), scores.inserted.astype(np.int64)
    remaining, planned = len(rest), min(len(rest), MOST_PLANNED)
    rows = rows[: MOST_PLANNED // 10]
    plan = planner(scores.score[rows], coins[rows], planned)
    if planned < remaining:
        top = plan.top * remaining // planned
        everything = plan.top + plan.bottom == planned
        bottom = remaining - top if everything else plan.bottom * remaining // planned
        plan = GuessPlan(top=top, bottom=bottom, cut=plan.cut)
    correct, guesses = count_guesses(scores.score[rest], coins[rest], plan, seed=seed)
    return Guesses(correct, guesses, remaining)


# Levels of the two tests: fair coins are refused with at most these probabilities.
UNFAIR_BELOW = 0.001
HALF_BELOW = 0.05


def check_fair_coins(scores: Scores) -> None:
    """Refuse canaries that were hardly inserted by a fair coin each.

    An exact two-sided binomial test of the number inserted; and exactly half, in every run or
    over all canaries, where fair coins would seldom hit it. A refusal makes no claim, so a fair
    design loses the audit with that probability (2.5 % at 1,000 canaries) but no validity.
    """
    total, inserted = len(scores), int(scores.inserted.sum())
    chance = min(1.0, 2 * float(bdtr(min(inserted, total - inserted), total, 0.5)))
    if chance < UNFAIR_BELOW:
        raise InvalidScores(
            "one-run methods need canaries that were inserted by a fair coin each, and "
            f"{inserted:,} of {total:,} inserted has probability {chance:.1g} under fair coins; "
            "insert each canary with probability 1/2, or use clopper-pearson"
        )
    by_run, size = np.array([inserted]), np.array([total])
    if scores.clustered:
        _, run, size = np.unique(scores.run, return_inverse=True, return_counts=True)
        by_run = np.bincount(run, scores.inserted)
    # The logarithm of P(Binomial(size, 1/2) = size/2), summed over runs.
    half = gammaln(size + 1) - 2 * gammaln(size / 2 + 1) - size * np.log(2)
    if (2 * by_run == size).all() and half.sum() < np.log(HALF_BELOW):
        raise InvalidScores(
            "one-run methods need canaries that were inserted by a fair coin each, and exactly "
            f"half were ({inserted:,} of {total:,}), which fair coins give with probability "
            f"{np.exp(half.sum()):.1g}; flip a coin for each canary, or use clopper-pearson; an "
            "odd number of canaries never gives exactly half by chance"
        )


@final
@dataclass(frozen=True, kw_only=True)
class CandidatePlans:
    """Plans for the remaining canaries, and what the pilot predicts of each; arrays of one length.

    ``top`` and ``bottom`` are numbers of guesses at both ends of the ranking, ``cut`` a score
    between them, and ``correct`` the predicted number of correct guesses.
    """

    top: Integers
    bottom: Integers
    cut: Array
    correct: Integers
    remaining: int

    @property
    def guesses(self) -> Integers:
        """Numbers of guesses."""
        return self.top + self.bottom


def candidate_plans(
    pilot_scores: ArrayLike, pilot_inserted: ArrayLike, remaining: int
) -> CandidatePlans:
    """Plans worth considering, with the correct guesses that the pilot predicts for the rest.

    Equal scores are guessed together: a group of guesses ends between two distinct pilot scores.
    """
    scores, coins = _check_scores(pilot_scores, pilot_inserted)
    remaining = _validate.integer("remaining", remaining)
    size = scores.size
    if size == 0 or remaining == 0:
        none = np.zeros(1, dtype=np.int64)
        return CandidatePlans(
            top=none, bottom=none, cut=np.zeros(1), correct=none, remaining=remaining
        )
    order = np.argsort(scores, kind="stable")
    ascending, hits = scores[order], coins[order]
    # Numbers of lowest scores that end between two distinct scores; the cuts are there.
    ends = np.r_[0, 1 + np.flatnonzero(ascending[1:] != ascending[:-1]), size]
    between = midpoints(np.unique(ascending))
    cuts = np.r_[np.nextafter(ascending[0], -np.inf), between, ascending[-1]]
    inserted_below = np.r_[0, np.cumsum(hits)][ends]
    # Shares grow geometrically: what matters is the order of magnitude of the number of guesses.
    wanted = np.unique(np.r_[0, np.geomspace(1, size, 32).round(), -(-size // 4), size // 2])
    low = np.unique(np.searchsorted(ends, wanted).clip(max=len(ends) - 1))
    high = np.unique(np.searchsorted(ends, size - wanted, side="right") - 1)
    lower, upper = (grid.ravel() for grid in np.meshgrid(low, np.union1d(high, low)))
    fits = lower <= upper
    lower, upper = lower[fits], upper[fits]
    bottom, top = ends[lower], size - ends[upper]
    right = (bottom - inserted_below[lower]) + (hits.sum() - inserted_below[upper])
    guesses = top + bottom
    # A low quantile of the posterior under Jeffreys' prior: the best of hundreds of plans was
    # lucky in the pilot, and more so in a small one.
    accuracy = betaincinv(right + 0.5, guesses - right + 0.5, min(0.25, size / 1500))
    top_of_rest = top * remaining // size
    everything = lower == upper
    bottom_of_rest = np.where(everything, remaining - top_of_rest, bottom * remaining // size)
    correct = np.floor(accuracy * (top_of_rest + bottom_of_rest)).astype(np.int64)
    return CandidatePlans(
        top=top_of_rest,
        bottom=bottom_of_rest,
        cut=cuts[lower],
        correct=correct,
        remaining=remaining,
    )


def best_plan(
    plans: CandidatePlans,
    ceilings: Array,
    refutes: Callable[[Guesses, float], bool],
    bound: Callable[[Guesses], float],
) -> GuessPlan:
    """The plan with the largest bound, if the guesses turn out as the pilot predicts.

    A bound takes dozens of tests, so few plans get one: plans are tried from the highest ceiling
    down until no remaining ceiling exceeds the best bound, and a plan that does not refute the best
    value so far is skipped. A ceiling is quick to compute and at least as large as the bound.
    """
    best, winner = 0.0, None
    for index in np.argsort(-ceilings, kind="stable"):
        if ceilings[index] <= best:
            break
        observed = Guesses(int(plans.correct[index]), int(plans.guesses[index]), plans.remaining)
        if not refutes(observed, best):
            continue
        value = bound(observed)
        if value > best:
            best, winner = value, index
    if winner is None:
        # No plan is expected to give a bound. The rest is larger, so guess about a quarter at each
        # end, near the 27 % that shows a small shift best (Kelley 1939).
        quarter = plans.remaining // 4
        enough = np.flatnonzero(np.minimum(plans.top, plans.bottom) >= quarter)
        if len(enough) == 0:
            return GuessPlan(top=quarter, bottom=quarter)
        winner = enough[plans.guesses[enough].argmin()]
    return GuessPlan(
        top=int(plans.top[winner]), bottom=int(plans.bottom[winner]), cut=float(plans.cut[winner])
    )


def _hits(
    sure: NDArray[np.bool_],
    equal: NDArray[np.bool_],
    hits: Integers,
    count: int,
    taken: tuple[int, int],
    random: np.random.Generator,
) -> tuple[int, tuple[int, int]]:
    """Hits among ``count`` canaries: the ``sure`` ones, and some drawn from the ``equal`` ones.

    ``hits`` is 1 where a guess would be correct; ``taken`` are the hits and misses among ``equal``
    that were drawn before. Returns the number of hits, and hits and misses drawn from ``equal``.
    """
    good = int(hits[equal].sum())
    bad = int(equal.sum()) - good
    wanted = count - int(sure.sum())
    drawn = int(random.hypergeometric(good - taken[0], bad - taken[1], wanted))
    return int(hits[sure].sum()) + drawn, (drawn, wanted - drawn)


def _check_scores(scores: ArrayLike, inserted: ArrayLike) -> tuple[Array, Integers]:
    values, coins = numbers(scores), labels(inserted)
    if len(values) != len(coins):
        raise InvalidScores(f"{len(values)} scores need as many coins, got {len(coins)}")
    return values, coins.astype(np.int64)
