"""False claims of every sharpened test in 10,000 audits, and the counterexample to independence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy.special import ndtr, ndtri

from dpaudit.claims import Claim, test_claim
from dpaudit.claims.anytime import AnytimeTest, Bets
from dpaudit.claims.fixed_sample import dependent_p_value
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import ErrorCounts, Pilot, estimate
from dpaudit.lower_bounds.dpsgd import (
    _composed,
    _one_step,
    dpsgd_family,
    threshold_by_pilot,
)
from dpaudit.lower_bounds.joint_test import curve_refuted
from dpaudit.scores import Scores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import Gaussian, RandomisedResponse, ScoreFamily

AUDITS, COIN_AUDITS = 10_000, 1_000
# The common coin: with this probability all canaries get randomised response of this accuracy.
SHARE, ACCURACY = 0.8, 0.73
COIN_CANARIES = 1_000


@final
@dataclass(frozen=True)
class CellRow:
    """One cell: how many of the audits were wrong, and how many the method declined."""

    table: str
    test: str
    scores: str
    audits: int
    wrong: int
    declined: int


def _halves(family: ScoreFamily, each: int) -> Callable[[np.random.Generator], Scores]:
    return lambda random: Scores.from_samples(*family.audit(each, random))


def _coins(family: ScoreFamily, canaries: int) -> Callable[[np.random.Generator], Scores]:
    def draw(random: np.random.Generator) -> Scores:
        coins = random.random(canaries) < 0.5
        return Scores(score=family.draw(coins, random), inserted=coins)

    return draw


def _common_coin(random: np.random.Generator) -> Scores:
    """One run in which a common coin switches all canaries to randomised response."""
    coins = random.random(COIN_CANARIES) < 0.5
    accuracy = ACCURACY if random.random() < SHARE else 0.5
    shown = np.where(random.random(COIN_CANARIES) < accuracy, coins, ~coins)
    run = np.zeros(COIN_CANARIES, dtype=np.int64)
    return Scores(score=shown.astype(float), inserted=coins, run=run)


def common_coin_mu() -> float:
    """Smallest mu for which each canary of the common coin is mu-GDP.

    The trade-off function is piecewise linear, so only its vertices matter, of which two are
    mirror images of each other.
    """
    return float(ndtri(SHARE * ACCURACY) - ndtri(SHARE * (1 - ACCURACY)))


def _bound_above(method: str, delta: float, truth: float) -> Callable[[Scores, int], bool]:
    def wrong(scores: Scores, seed: int) -> bool:
        return estimate(scores, delta=delta, method=method, seed=seed).epsilon > truth + 1e-9

    return wrong


def _mu_above(method: str, mu: float) -> Callable[[Scores, int], bool]:
    def wrong(scores: Scores, seed: int) -> bool:
        return (estimate(scores, delta=1e-5, method=method, seed=seed).mu or 0.0) > mu + 1e-9

    return wrong


def _refutes(claim: Claim) -> Callable[[Scores, int], bool]:
    return lambda scores, seed: test_claim(scores, claim, seed=seed).p_value <= 0.05


def _refutes_whatever_depends(claim: Claim) -> Callable[[Scores, int], bool]:
    return lambda scores, seed: dependent_p_value(scores, claim, seed=seed) <= 0.05


def _ever_refutes(claim: Claim) -> Callable[[Scores, int], bool]:
    bets = Bets.against(claim)

    def wrong(scores: Scores, seed: int) -> bool:
        test = AnytimeTest(claim, bets=bets)
        test.add(scores.inserted_scores, scores.other_scores)
        return test.refuted

    return wrong


def _dpsgd(rate: float, steps: int, noise: float, each_side: int = 500) -> tuple[Any, ...]:
    """A cell of method dpsgd: a bound is false if the test refutes the true member of the family.

    Scores are drawn from the privacy loss on a fine grid, which leaks a little more than the
    mechanism, and spread over the cells of the grid.
    """
    interval = 1e-3

    @cache
    def tables() -> tuple[Any, ...]:
        first, masses, _ = _one_step(rate, noise, interval)
        first, masses = _composed([(first, masses, steps)])
        losses = interval * (first + np.arange(len(masses)))
        masses = np.maximum(masses, 0)
        both = np.cumsum(masses), np.cumsum(masses * np.exp(-losses))
        return losses, *(cumulated / cumulated[-1] for cumulated in both)

    def draw(random: np.random.Generator) -> Scores:
        losses, *cumulated = tables()
        return Scores.from_samples(
            *(
                losses[np.searchsorted(each, random.random(each_side))]
                + interval * random.random(each_side)
                for each in cumulated
            )
        )

    family = dpsgd_family(((1.0, rate, steps),))

    @cache
    def refuted(fp: int, fn: int, negatives: int, positives: int) -> bool:
        counts = ErrorCounts.given(
            true_positives=positives - fn,
            false_negatives=fn,
            false_positives=fp,
            true_negatives=negatives - fp,
        )
        return curve_refuted(counts, family.curve(1 / noise), 0.05)

    def wrong(scores: Scores, seed: int) -> bool:
        pilot_in, rest_in, pilot_out, rest_out = Pilot(seed=seed).split(
            scores.inserted_scores, scores.other_scores
        )
        sizes = len(rest_in), len(rest_out)
        cut = threshold_by_pilot(pilot_in, pilot_out, family, rest=sizes)
        false_positives, false_negatives = int((rest_out > cut).sum()), int((rest_in <= cut).sum())
        return refuted(false_positives, false_negatives, sizes[1], sizes[0])

    words = f"DP-SGD, sampling rate {rate:g}, {steps:,} steps, noise {noise:g}"
    words = f"{words}, {each_side:,} a side"
    return "cells", "`dpsgd`", words, draw, wrong


GAUSS, RESPONSE, LEAK = Gaussian(1.0), RandomisedResponse(1.0), RandomisedResponse(1.0, 0.01)
ONE_GDP = Claim.from_mu(1.0)

# Table, test, scores in words, how they are drawn, whether the test is wrong.
CELLS = (
    ("cells", "`gaussian-dp`", "1-GDP, 50 a side", _halves(GAUSS, 50), _mu_above("gaussian-dp", 1)),
    ("cells", "`clopper-pearson`", "randomised response, epsilon 1, 50 a side",
     _halves(RESPONSE, 50), _bound_above("clopper-pearson", 1e-5, RESPONSE.epsilon(1e-5))),
    ("cells", "`clopper-pearson`, pilot that foresees", "1-GDP, 200 a side",
     _halves(GAUSS, 200), _bound_above("clopper-pearson", 0.1, GAUSS.epsilon(0.1))),
    ("cells", "`test_claim`", "1-GDP, 50 a side",
     _halves(GAUSS, 50), _refutes(ONE_GDP)),
    ("cells", "`one-run`", "randomised response, epsilon 1, 201 canaries",
     _coins(RESPONSE, 201), _bound_above("one-run", 1e-5, RESPONSE.epsilon(1e-5))),
    ("cells", "`one-run`, recursion", "(1, 0.01)-DP, 101 canaries",
     _coins(LEAK, 101), _bound_above("one-run", 0.01, 1.0)),
    ("cells", "`one-run-fdp`", "1-GDP, 101 canaries",
     _coins(GAUSS, 101), _mu_above("one-run-fdp", 1)),
    ("cells", "`one-run-independent`", "1-GDP, 201 canaries",
     _coins(GAUSS, 201), _mu_above("one-run-independent", 1)),
    ("cells", "`dependent_p_value`", "1-GDP, 61 canaries",
     _coins(GAUSS, 61), _refutes_whatever_depends(ONE_GDP)),
    ("cells", "`AnytimeTest`, stopped at any pair", "1-GDP, 40 pairs",
     _halves(GAUSS, 40), _ever_refutes(ONE_GDP)),
    *(
        ("coin", f"`{method}`", "", _common_coin, _mu_above(method, 1))
        for method in ("one-run-fdp", "one-run-independent", "gaussian-dp")
    ),
    *(
        ("coin", f"`{method}`, delta = 0.1", "", _common_coin,
         _bound_above(method, 0.1, float(np.log((ACCURACY - 0.1 / SHARE) / (1 - ACCURACY)))))
        for method in ("one-run", "clopper-pearson")
    ),
    ("coin", "`dependent_p_value`", "", _common_coin, _refutes_whatever_depends(ONE_GDP)),
    ("coin", "`test_claim`, p-value", "", _common_coin, _refutes(ONE_GDP)),
    # The position of a cell seeds its audits, so that new cells come last.
    ("cells", "`gaussian-dp`, pilot that foresees", "1-GDP, 200 a side",
     _halves(GAUSS, 200), _mu_above("gaussian-dp", 1)),
    # Epsilon 8, 8 and 4 at delta = 1e-5.
    _dpsgd(0.1, 100, 0.936),
    _dpsgd(0.01, 1000, 0.5863),
    _dpsgd(0.01, 10_000, 1.288),
    ("cells", "`gaussian-fit`", "1-GDP, 20 a side",
     _halves(GAUSS, 20), _mu_above("gaussian-fit", 1)),
    ("cells", "`profile`", "1-GDP, 200 a side",
     _halves(GAUSS, 200), _bound_above("profile", 0.1, GAUSS.epsilon(0.1))),
    _dpsgd(0.1, 100, 0.936, 5000),
    _dpsgd(0.01, 1000, 0.5863, 5000),
    _dpsgd(0.01, 10_000, 1.288, 5000),
)  # fmt: skip


@final
@dataclass(frozen=True)
class CellTask:
    """Some of the audits of one cell."""

    which: int
    first: int
    last: int

    def run(self) -> list[CellRow]:
        table, test, words, draw, is_wrong = CELLS[self.which]
        wrong = declined = 0
        for audit in range(self.first, self.last):
            random = np.random.default_rng([5, self.which, audit])
            try:
                wrong += is_wrong(draw(random), audit)
            except DpauditError:
                declined += 1  # such as exactly half of the coins
        return [CellRow(table, test, words, self.last - self.first, wrong, declined)]


def cell_tasks(*, at_once: int = 1000, test: str = "") -> list[CellTask]:
    """All work on cells, in pieces; only those of one test if it is named."""
    return [
        CellTask(which, first, first + at_once)
        for which, (table, name, *_) in enumerate(CELLS)
        if test in ("", name.strip("`"))
        for first in range(0, AUDITS if table == "cells" else COIN_AUDITS, at_once)
    ]


def add_up_cells(rows: list[CellRow]) -> list[CellRow]:
    """The rows of all tasks, one for each cell, in the order of `CELLS`."""
    summed = []
    for table, test, words, *_ in CELLS:
        parts = [row for row in rows if (row.table, row.test, row.scores) == (table, test, words)]
        if not parts:
            continue
        summed.append(
            CellRow(
                table,
                test,
                words,
                sum(row.audits for row in parts),
                sum(row.wrong for row in parts),
                sum(row.declined for row in parts),
            )
        )
    return summed


assert ndtr(ndtri(SHARE * (1 - ACCURACY)) + 1) >= SHARE * ACCURACY  # each canary is 1-GDP
