"""How many runs an audit of the user's training needs, from a few pilot trainings."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._numbers import percent
from dpaudit.claims import Claim, unconfirmed
from dpaudit.claims.policy import Policy
from dpaudit.claims.power import power_of
from dpaudit.errors import InvalidInput, TrainingFailed
from dpaudit.privacy import DETECT, LEAST_POWER
from dpaudit.trainings.probe import DeadCanary, check_function
from dpaudit.trainings.run import Job, Train, traceback_of
from dpaudit.trainings.scoring import AdversaryLike, Scorer, UnscorableReturn, names_of

MOST_RUNS = 1_000_000
"""Largest number of runs that a plan considers."""

_CAUTION = 0.1  # probability that the noise is larger than the cautious plan takes it to be


@final
@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Number of runs that finds too little noise, with the stated power.

    Arguments:
        detect: Fraction of the claimed noise that is to be found.
        power: Probability with which it is to be found.
        mu: Distance of the scores with and without the canary, in standard deviations of their own
            noise, as the pilot trainings show it.
        runs: Number of runs needed; `None` above `MOST_RUNS`.
        cautious_runs: The same if the noise of the scores is as large as the few pilot trainings
            leave possible (90 % confidence).
        canaries: Canaries per run.
        weakest: Name of the canary that needs most runs, if canaries have names.
        pilot: Number of pilot trainings.
        seconds: Estimated duration of ``runs`` trainings, one after the other.
    """

    detect: float
    power: float
    mu: float
    runs: int | None
    cautious_runs: int | None
    canaries: int
    weakest: str
    pilot: int
    seconds: float | None

    @property
    def sentence(self) -> str:
        """The plan in words."""
        wanted = (
            f"noise {1 / self.detect:.3g} times too small with a probability of "
            f"{percent(self.power)} %"
        )
        seen = f"mu = {self.mu:.3g}, from {self.pilot} pilot trainings"
        if self.runs is None:
            return (
                f"More than {MOST_RUNS:,} runs would be needed to find {wanted} ({seen}): the "
                "scores hardly depend on the canary. Use a better score or more canaries."
            )
        most = "many more" if self.cautious_runs is None else f"{self.cautious_runs:,}"
        range_ = "" if most == f"{self.runs:,}" else f"; {most} if the pilot is unlucky"
        where = f" in every tensor (most runs: {self.weakest})" if self.weakest else ""
        return (
            f"{self.runs:,} runs find {wanted}{where} ({seen}{range_}), if batches and starting "
            "points are the same in all runs, so that only the noise varies."
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "detect_noise": self.detect,
            "power": self.power,
            "mu": self.mu if math.isfinite(self.mu) else "inf",
            "runs_needed": self.runs,
            "cautious_runs_needed": self.cautious_runs,
            "canaries": self.canaries,
            "weakest_canary": self.weakest or None,
            "pilot_trainings": self.pilot,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "sentence": self.sentence,
        }


def plan_training(
    train: Train,
    *,
    claim: Claim,
    canary: Any = None,
    adversary: AdversaryLike = None,
    initial: Any = None,
    detect: float = DETECT,
    power: float = LEAST_POWER,
    confidence: float = 0.95,
    pilot: int = 6,
    seed: int = 0,
) -> TrainingPlan:
    """The number of runs with which `dpaudit.audit_training` finds too little noise.

    Every pilot seed is trained with and without the canary. The difference shows the effect of the
    canary almost without noise, and the spread over seeds shows the noise.

    Arguments:
        train: The training function, as for `dpaudit.audit_training`.
        claim: The claim that the audit will test.
        canary: As for `dpaudit.audit_training`.
        adversary: As for `dpaudit.audit_training`.
        initial: As for `dpaudit.audit_training`.
        detect: Fraction of the claimed noise that is to be found; 0.5 means noise halved.
        power: Probability with which it is to be found.
        confidence: Confidence of the verdict.
        pilot: Number of pilot seeds, each of which is trained twice; at least 3.
        seed: Random seed.

    Example:
        >>> def train(canary, inserted, seed):
        ...     return inserted + np.random.default_rng(seed).normal()
        >>> plan_training(train, claim=Claim.from_mu(1.0)).runs in range(20, 400)
        True
    """
    _validate.between("detect", detect, 0, 1)
    _validate.between("power", power, 0, 1)
    _validate.confidence(confidence)
    pilot = _validate.integer("pilot", pilot, at_least=3)
    check_function(train, canary)
    names = names_of(canary)
    job = Job(
        train=train,
        scorer=Scorer(canary=canary, adversary=adversary, initial=initial),
        seed=_validate.integer("seed", seed),
    )
    effects, noises, seconds = _pilot(job, pilot)
    freedom = pilot - 1
    if names:
        apart = effects / noises
        place = int(np.argmin(apart))
        weakest, mu = names[place], float(apart[place])
        each = 0.5
    else:
        canaries = job.scorer.canaries
        weakest, mu = "", float(effects.mean() / np.sqrt(np.mean(noises**2)))
        each, freedom = canaries / 2, freedom * canaries
    mu = max(mu, 0.0)
    policy, tests = unconfirmed(1 - confidence), max(1, len(names))
    runs = _runs(claim, mu / detect, each, power, policy, tests)
    cautious = _runs(claim, mu * _least_share(freedom) / detect, each, power, policy, tests)
    return TrainingPlan(
        detect=float(detect),
        power=float(power),
        mu=mu,
        runs=runs,
        cautious_runs=cautious,
        canaries=job.scorer.canaries,
        weakest=weakest,
        pilot=2 * pilot,
        seconds=None if runs is None else runs * seconds,
    )


def _pilot(job: Job, seeds: int) -> tuple[Array, Array, float]:
    """The effect and the noise of every canary, and the seconds of one training."""
    scores, began = [], time.perf_counter()
    for run in range(seeds):
        coins = np.resize([True, False], job.scorer.canaries)
        pair = []
        for chosen in (coins, ~coins):
            try:
                kind, found = job.scorer.score(job.returned(run, chosen))
            except UnscorableReturn:
                raise
            except (Exception, SystemExit) as error:
                raise TrainingFailed(
                    f"the pilot training of run {run} failed with {type(error).__name__}: "
                    f"{error}\n{traceback_of(error)}"
                ) from error
            job = job.pinned(kind)
            pair.append(found)
        present, absent = np.where(coins, pair[0], pair[1]), np.where(coins, pair[1], pair[0])
        scores.append((present, absent))
    seconds = (time.perf_counter() - began) / (2 * seeds)
    table: Array = np.array(scores)  # seeds, with and without, canaries
    effects = (table[:, 0] - table[:, 1]).mean(axis=0)
    noises = np.sqrt(table.var(axis=0, ddof=1).mean(axis=0))
    if not effects.any():
        raise DeadCanary(
            f"the scores are exactly the same with and without the canary in {seeds} pairs of "
            "trainings with the same seed: the training ignores the canary"
        )
    if not noises.any():
        raise InvalidInput(
            f"the scores of {seeds} seeds are all the same: the training adds no noise, or does "
            "not draw it from its seed; a plan needs the noise of the scores"
        )
    return effects, np.maximum(noises, 1e-300), seconds


def _least_share(freedom: int) -> float:
    """How much smaller mu may be than its estimate: the noise has few degrees of freedom."""
    from scipy.stats import chi2  # slow to import

    return float(np.sqrt(chi2.ppf(_CAUTION, freedom) / freedom))


def _runs(
    claim: Claim, mu: float, each: float, power: float, policy: Policy, tests: int
) -> int | None:
    """The smallest even number of runs with this power, to about 5 %."""
    sizes = np.unique(np.round(np.geomspace(2, MOST_RUNS, 270) / 2).astype(int) * 2)

    def enough(runs: int) -> bool:
        scores = max(1, round(each * runs))
        return power_of(claim, mu, scores=scores, policy=policy, tests=tests) >= power

    place = bisect_left(range(len(sizes)), True, key=lambda i: enough(int(sizes[i])))
    return None if place == len(sizes) else int(sizes[place])
