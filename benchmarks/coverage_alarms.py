"""How often the whole rule of alarms is wrong, and what it finds: suspicions, and violations.

A decision of the test depends only on the two numbers of errors, so every test is computed once, as
the region of errors that it rejects; thousands of audits are then cheap. Scores and pilots are
drawn as in `dpaudit.claims.judge`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

import dpaudit
from dpaudit._arrays import Array
from dpaudit.audits.identity import Sample, sample_seed
from dpaudit.claims import CONFIRMED, STRICT, Claim
from dpaudit.claims.anytime import AnytimeTest, Bets
from dpaudit.claims.fixed_sample import errors_at_threshold
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import curve_refuted
from dpaudit.lower_bounds.selection import Pilot
from dpaudit.pipelines.scores import LearnedScore, Released
from dpaudit.scores import Scores
from dpaudit.trainings.coins import inserted_in, training_seed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import Gaussian, RandomisedResponse, ScoreFamily

AUDITS = 20_000
LEARNED = "claim met exactly, learned score"
PILOT, NUMBERS = 48, 4
ONE_GDP = Claim.from_mu(1.0)


@final
@dataclass(frozen=True)
class LearnedGaussian:
    """Four Gaussian numbers whose mean moves by 1 along a diagonal, and a score that is learned.

    The pilot of an audit of 200 runs has 48 runs. Its score is that of both stages.
    """

    score: LearnedScore | None = None

    def with_pilot(self, random: np.random.Generator) -> LearnedGaussian:
        """The same results with a score that a new pilot has trained."""
        labels = np.arange(PILOT) % 2 == 1
        pilot = [Released.of(self._results(1, bool(second), random)) for second in labels]
        return LearnedGaussian(LearnedScore.learn(pilot, labels))

    def audit(self, each: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Scores with and without the record."""
        assert self.score is not None
        results = [self._results(each, second, random) for second in (True, False)]
        with_record, without = (
            self.score.of_rows(rows, np.linalg.norm(rows, axis=1)[:, None]) for rows in results
        )
        return with_record, without

    def _results(self, count: int, second: bool, random: np.random.Generator) -> Array:
        return random.standard_normal((count, NUMBERS)) + second / NUMBERS**0.5


FAMILIES: dict[str, ScoreFamily | LearnedGaussian] = {
    LEARNED: LearnedGaussian(),
    "claim met exactly": Gaussian(1.0),
    "noise 20 % too small": Gaussian(1.25),
    "noise 30 % too small": Gaussian(1 / 0.7),
    "noise halved": Gaussian(2.0),
    "randomised response that meets (1, 0)-DP exactly": RandomisedResponse(1.0),
}
PURE = Claim.from_points([(1.0, 0.0)])


def _place(family: str) -> int:
    """The place of a family in the seeds; families that came later are last."""
    return sorted(FAMILIES, key=lambda name: (name == LEARNED, name)).index(family)


@final
@dataclass(frozen=True)
class AlarmRow:
    """What one rule said in one setting."""

    rule: str
    scores: str
    runs: int
    tensors: int
    audits: int
    suspected: int  # by the first runs, or at any time
    violations: int


@lru_cache(maxsize=64)
def rejected(claim: Claim, positives: int, negatives: int, level: float) -> NDArray[np.int64]:
    """For each number of false positives, the largest rejected number of false negatives; or -1."""
    most = np.full(negatives + 1, -1)
    errors = positives
    for false_positives in range(negatives + 1):
        while errors >= 0 and not curve_refuted(
            ErrorCounts.given(
                true_positives=positives - errors,
                false_negatives=errors,
                false_positives=false_positives,
                true_negatives=negatives - false_positives,
            ),
            claim.curve,
            level,
        ):
            errors -= 1
        if errors < 0:
            break
        most[false_positives] = errors
    return most


def _refutes(scores: Scores, claim: Claim, level: float, seed: int) -> bool:
    counts, _, _ = errors_at_threshold(scores, claim, Pilot(seed=seed))
    region = rejected(claim, counts.positives, counts.negatives, level)
    return bool(counts.false_negatives[0] <= region[counts.false_positives[0]])


def draw(family: ScoreFamily | LearnedGaussian, runs: int, random: np.random.Generator) -> Scores:
    """Half of the runs with the canary."""
    return Scores.from_samples(*family.audit(runs // 2, random))


@final
@dataclass(frozen=True)
class AlarmTask:
    """Some audits of one family by the two stages, with one threshold or K tensors."""

    family: str
    runs: int
    tensors: int
    first: int
    last: int

    def run(self) -> list[AlarmRow]:
        family, claim = FAMILIES[self.family], PURE if "response" in self.family else ONE_GDP
        suspected = violations = strict = 0
        for audit in range(self.first, self.last):
            place = _place(self.family)
            random = np.random.default_rng([6, place, self.runs, self.tensors, audit])
            if isinstance(family, LearnedGaussian):
                family = family.with_pilot(random)
            samples = [draw(family, self.runs, random) for _ in range(self.tensors)]
            level, proof = CONFIRMED.suspect / self.tensors, STRICT.prove / self.tensors
            suspects = sum(_refutes(own, claim, level, audit) for own in samples)
            if not suspects:
                continue
            suspected += 1
            strict += any(_refutes(own, claim, proof, audit) for own in samples)
            confirm = (CONFIRMED.confirm or 0.0) / suspects
            fresh = [draw(family, CONFIRMED.fresh * self.runs, random) for _ in range(suspects)]
            violations += any(_refutes(own, claim, confirm, audit) for own in fresh)
        common = (self.family, self.runs, self.tensors, self.last - self.first, suspected)
        return [
            AlarmRow("confirmed", *common, violations),
            AlarmRow("strict", *common, strict),
        ]


@final
@dataclass(frozen=True)
class AnytimeTask:
    """Some audits that are tested after every pair of runs."""

    family: str
    runs: int
    first: int
    last: int

    def run(self) -> list[AlarmRow]:
        family, bets = FAMILIES[self.family], Bets.against(ONE_GDP)
        p_values = []
        for audit in range(self.first, self.last):
            place = _place(self.family)
            random = np.random.default_rng([7, place, self.runs, audit])
            test = AnytimeTest(ONE_GDP, bets=bets)
            test.add(*family.audit(self.runs // 2, random))
            p_values.append(test.p_value)
        smallest = np.array(p_values)
        return [
            AlarmRow(
                "anytime", self.family, self.runs, 1, len(smallest),
                int((smallest <= STRICT.suspect).sum()), int((smallest <= STRICT.prove).sum()),
            )
        ]  # fmt: skip


WHOLE_EVERY = 400
"""Of so many audits one is also played by `dpaudit.audit`, and must come to the same verdict."""

NOISES = {"claim met exactly": 1.0, "noise 30 % too small": 0.7}


def noise_of(seeds: NDArray[np.int64]) -> NDArray[np.float64]:
    """A normal number for each seed, by the mixing function of SplitMix64: fast for many seeds."""
    mixed = seeds.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return ndtri((mixed >> np.uint64(11)) * 2.0**-53 + 2.0**-54)


@final
@dataclass(frozen=True)
class AuditTask:
    """Whole audits of one training function, seed after seed, as `dpaudit.audit` plays them.

    Coins, seeds of the runs, the size and the seeds of the second stage, and the pilot are those of
    the audit. Its bounds, its power and its store decide nothing about a violation: only every
    400th audit is played with them.
    """

    family: str
    runs: int
    first: int
    last: int

    def train(self, canary: object, inserted: bool, seed: int) -> float:
        """Scores one standard deviation of the claimed noise apart."""
        return float(inserted + NOISES[self.family] * noise_of(np.array([seed]))[0])

    def _played(self, audit: int, phase: int) -> Scores:
        seed = sample_seed(seed=audit, runs=self.runs, phase=phase)
        runs = self.runs if phase == 0 else CONFIRMED.fresh * self.runs
        sample = Sample(phase=phase, runs=runs, seed=seed, tile_size=1)
        seeds = np.array([training_seed(run, seed=seed) for run in range(sample.runs)])
        first = np.array([inserted_in(run, canaries=1, seed=seed) for run in range(0, runs, 2)])
        coins = np.column_stack([first, ~first]).ravel()  # one run of each pair has the canary
        return Scores(score=coins + NOISES[self.family] * noise_of(seeds), inserted=coins)

    def run(self) -> list[AlarmRow]:
        suspected = violations = 0
        for audit in range(self.first, self.last):
            suspect = _refutes(self._played(audit, 0), ONE_GDP, CONFIRMED.suspect, audit)
            violation = suspect and _refutes(
                self._played(audit, 1), ONE_GDP, CONFIRMED.confirm or 0.0, audit
            )
            suspected, violations = suspected + suspect, violations + violation
            if audit % WHOLE_EVERY == 0:
                whole = dpaudit.audit(self.train, claim=ONE_GDP, runs=self.runs, seed=audit)
                said = whole.fresh_runs > 0, whole.verdict == "violation"
                if said != (suspect, violation):
                    raise AssertionError(f"audit {audit}: {said}, expected {suspect, violation}")
        audits = self.last - self.first
        return [AlarmRow("whole", self.family, self.runs, 1, audits, suspected, violations)]


def alarm_tasks(
    *, at_once: int = 2000, test: str = ""
) -> list[AlarmTask | AnytimeTask | AuditTask]:
    """All work on alarms, in pieces; or that on one family of scores."""
    tasks: list[AlarmTask | AnytimeTask | AuditTask] = []
    exact, response = "claim met exactly", "randomised response that meets (1, 0)-DP exactly"
    for family, runs, tensors, audits in (
        (exact, 200, 1, AUDITS),
        (exact, 1000, 1, AUDITS),
        (response, 200, 1, AUDITS),
        (exact, 200, 5, AUDITS),
        *((f"noise {share} too small", 200, 1, AUDITS) for share in ("20 %", "30 %")),
        ("noise halved", 200, 1, AUDITS),
        ("noise 20 % too small", 1000, 1, AUDITS),
        (LEARNED, 200 - PILOT, 1, AUDITS),
    ):
        tasks += [
            AlarmTask(family, runs, tensors, first, min(first + at_once, audits))
            for first in range(0, audits, at_once)
        ]
    for family, audits in ((exact, AUDITS), ("noise halved", AUDITS // 10)):
        tasks += [
            AnytimeTask(family, 100, first, min(first + at_once, audits))
            for first in range(0, audits, at_once)
        ]
    for family, audits in (("claim met exactly", AUDITS), ("noise 30 % too small", AUDITS // 10)):
        tasks += [
            AuditTask(family, 200, first, min(first + at_once, audits))
            for first in range(0, audits, at_once)
        ]
    return [task for task in tasks if test in ("", task.family)]


def add_up_alarms(rows: list[AlarmRow]) -> list[AlarmRow]:
    """The rows of all tasks, one for each rule and setting."""
    summed: dict[tuple[str, str, int, int], list[AlarmRow]] = {}
    for row in rows:
        summed.setdefault((row.rule, row.scores, row.runs, row.tensors), []).append(row)
    return [
        AlarmRow(
            *setting,
            sum(row.audits for row in parts),
            sum(row.suspected for row in parts),
            sum(row.violations for row in parts),
        )
        for setting, parts in summed.items()
    ]
