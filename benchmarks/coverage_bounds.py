"""How often each lower bound claims more than the truth, over simulated audits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import estimate, proven_curve
from dpaudit.scores import Scores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import (
    Gaussian,
    Laplace,
    RandomisedResponse,
    ScoreFamily,
    SubsampledGaussian,
    TwoPointMixture,
)

SIZES = (50, 500, 2500)
CONFIDENCE = 0.95
# Rounding of the last digit must not count as a claim above the truth.
SLACK = 1e-9


@final
@dataclass(frozen=True)
class Contestant:
    """A method with its threshold rule, and on which audits it runs."""

    method: str
    rule: str = "pilot"
    every: int = 1  # methods without a guarantee are run on fewer audits
    fair_coins: bool = False
    small_delta_only: bool = False

    @property
    def label(self) -> str:
        return self.method if self.rule == "pilot" else f"{self.method}, {self.rule}"


# The same numbers as clopper-pearson with the rule simultaneous, and of the whole curve.
PROFILE, WHOLE_CURVE = "profile", "profile, whole curve"

FREE = (
    Contestant("clopper-pearson"),
    Contestant("clopper-pearson", "bonferroni", every=8),
    Contestant("clopper-pearson", "best", every=4),
    # Evaluated at the small delta only, to save time.
    Contestant("one-run", fair_coins=True, small_delta_only=True),
)
APPROXIMATE = tuple(
    Contestant(method, every=every, small_delta_only=True)
    for method, every in (
        ("jeffreys", 4),
        ("joint-beta", 8),
        ("katz-log", 4),
        ("adjusted-log", 4),
        ("bailey", 4),
        ("inverse-sinh", 4),
    )
)
GAUSSIAN_ONLY = (
    Contestant("gaussian-dp"),
    Contestant("gaussian-dp", "simultaneous"),
    Contestant("gaussian-dp", "bonferroni", every=8),
    Contestant("gaussian-dp", "best"),
    Contestant("gaussian-fit"),
    Contestant("one-run-fdp", fair_coins=True),
    Contestant("one-run-independent", fair_coins=True),
)
# The Gaussian methods where their assumption is false: shown without a guarantee.
OUT_OF_PLACE = (
    Contestant("gaussian-dp", every=8, small_delta_only=True),
    Contestant("gaussian-fit", every=8, small_delta_only=True),
)


@final
@dataclass(frozen=True)
class Setting:
    """One family of scores, the deltas and the methods."""

    family: ScoreFamily
    deltas: tuple[float, ...]
    contestants: tuple[Contestant, ...]


SETTINGS = (
    *(
        Setting(Gaussian(mu), (1e-5,), (*FREE, *APPROXIMATE, *GAUSSIAN_ONLY))
        for mu in (0.0, 1.0, 3.95)
    ),
    *(
        Setting(family, (1e-5, 1e-2), (*FREE, *APPROXIMATE, *OUT_OF_PLACE))
        for family in (
            RandomisedResponse(1.0),
            RandomisedResponse(4.0),
            Laplace(1.0),
            TwoPointMixture(1.0),
            TwoPointMixture(4.0),
            SubsampledGaussian(0.1, 2.0),
        )
    ),
)


@final
@dataclass(frozen=True)
class Row:
    """One contestant in one cell: over how many audits, and what was claimed."""

    family: str
    each: int
    delta: float
    contestant: str
    truth: float
    audits: int
    false_claims: int
    total_epsilon: float  # summed over the audits, so that parts of a cell can be added up

    def __add__(self, other: Row) -> Row:
        return Row(
            self.family,
            self.each,
            self.delta,
            self.contestant,
            self.truth,
            self.audits + other.audits,
            self.false_claims + other.false_claims,
            self.total_epsilon + other.total_epsilon,
        )


@final
@dataclass(frozen=True)
class BoundsTask:
    """Some of the audits of one setting at one size: the unit of work of a process."""

    setting: int
    each: int
    first: int
    last: int

    def run(self) -> list[Row]:
        setting = SETTINGS[self.setting]
        tally: dict[tuple[float, str], list[float]] = {}
        for audit in range(self.first, self.last):
            random = np.random.default_rng([2, self.setting, self.each, audit])
            half = Scores.from_samples(*setting.family.audit(self.each, random))
            coins = random.random(2 * self.each) < 0.5
            fair = Scores(score=setting.family.draw(coins, random), inserted=coins)
            both = 0 < coins.sum() < len(coins)
            for who in setting.contestants:
                if audit % who.every == 0 and (both or not who.fair_coins):
                    scores = fair if who.fair_coins else half
                    for delta in setting.deltas[: 1 if who.small_delta_only else None]:
                        value = _claimed(scores, who, delta, seed=audit)
                        tally.setdefault((delta, who.label), []).append(value)
            self._tally_profile(tally, setting, half)
        return [
            self._row(setting.family, delta, label, np.array(values))
            for (delta, label), values in tally.items()
        ]

    def _tally_profile(
        self, tally: dict[tuple[float, str], list[float]], setting: Setting, scores: Scores
    ) -> None:
        curve = proven_curve(scores, confidence=CONFIDENCE)
        epsilons = np.linspace(0.0, max(curve.epsilon_at(0.0), 0.1), 15)
        wrong = curve.delta_at(epsilons) > setting.family.delta(epsilons) + SLACK
        for delta in setting.deltas:
            value = curve.epsilon_at(delta)
            tally.setdefault((delta, PROFILE), []).append(value)
            # Infinity stands for "false somewhere", whatever the epsilon at this delta.
            anywhere = np.inf if wrong.any() else value
            tally.setdefault((delta, WHOLE_CURVE), []).append(anywhere)

    def _row(self, family: ScoreFamily, delta: float, label: str, values: np.ndarray) -> Row:
        truth = family.epsilon(delta)
        return Row(
            family=family.name,
            each=self.each,
            delta=delta,
            contestant=label,
            truth=truth,
            audits=len(values),
            false_claims=int((values > truth * (1 + SLACK) + SLACK).sum()),
            total_epsilon=float(values[np.isfinite(values)].sum()),
        )


def _claimed(scores: Scores, who: Contestant, delta: float, seed: int) -> float:
    try:
        bound = estimate(
            scores,
            delta=delta,
            method=who.method,
            threshold=who.rule,
            confidence=CONFIDENCE,
            seed=seed,
        )
    except DpauditError:
        return 0.0  # a method that declines makes no claim
    return bound.epsilon


def bounds_tasks(audits: int, *, at_once: int = 250) -> list[BoundsTask]:
    """All work, cut into pieces of at most ``at_once`` audits, the longest first."""
    return [
        BoundsTask(setting, each, first, min(first + at_once, audits))
        for each in sorted(SIZES, reverse=True)
        for setting in range(len(SETTINGS))
        for first in range(0, audits, at_once)
    ]


def add_up(rows: list[Row]) -> list[Row]:
    """The rows of all tasks, one for each cell."""
    cells: dict[tuple[str, int, float, str], Row] = {}
    for row in rows:
        key = (row.family, row.each, row.delta, row.contestant)
        cells[key] = cells[key] + row if key in cells else row
    return list(cells.values())
