"""Predictions of an audit before it is played: of a `DPSGD` its bounds, runs, time and memory; of a
user's training the number of runs that finds too little noise, from a few pilot trainings.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._numbers import percent
from dpaudit.audits.assessment import METHODS_OF_AUDITS
from dpaudit.audits.mechanism_game import MechanismGame
from dpaudit.claims import CONFIRMED, Claim, Policy
from dpaudit.claims.power import allowed_separation, power_of
from dpaudit.curves import GAUSSIAN, gaussian_epsilon
from dpaudit.errors import (
    DeadCanary,
    InvalidInput,
    TrainingFailed,
    UnscorableReturn,
)
from dpaudit.lower_bounds import METHODS
from dpaudit.lower_bounds.prediction import expected_bound, predicted_mu, scores_needed
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.final_model import noise_of_released_model
from dpaudit.mechanisms.optimizers import SGD
from dpaudit.privacy import DETECT, LEAST_POWER, Bound, Bounds, ThreatModel
from dpaudit.threat_models import Adversary
from dpaudit.trainings.canary import CraftedCanary
from dpaudit.trainings.probe import check_function
from dpaudit.trainings.run import Job, Train, traceback_of
from dpaudit.trainings.scoring import AdversaryLike, Scorer
from dpaudit.upper_bounds import upper_bound

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Prepared

SHARES = (0.8, 0.9, 0.95)
"""Shares of the predicted epsilon for which the plan gives the number of runs."""

_PROBE_SECONDS = 2.0
_PROBE_STEPS = 20
_SIMULATION_SECONDS = 0.5

PREDICTION = (
    "genuine gradients neither amplify nor reduce the effect of the canary: true for a dimension "
    "that training does not move; other canaries show less, and crafted data such as that of "
    "crafted-network show more"
)

NONLINEAR = (
    "The prediction holds if noise is much larger than the gradients; otherwise the final model of "
    "{} shows less. An adversary that sees every iterate, such as dirac-gradient, loses little."
)


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """The expected bounds of an audit, its cost, and the number of runs that it needs.

    Arguments:
        upper: The accountant's upper bound.
        hidden_upper: The upper bound for the final model alone, if the updates are known to be
            Lipschitz and the adversary sees no iterates; otherwise `None`.
        mu: Expected distance of the scores with and without the canary, in standard deviations.
        epsilon: The lower bound that infinitely many runs would show.
        lower: The lower bounds to expect from the runs asked for, by method.
        runs: Number of runs asked for.
        canaries: Canaries per run.
        runs_needed: For several shares of ``epsilon``, the number of runs that shows it; `None`
            if a million scores would not.
        seconds: Estimated duration, from timing a few steps.
        bytes: Estimated memory of the runs that are played together.
        speed: The speed settings that would be used.
        device: Device used.
        notices: Further remarks for the user.
    """

    upper: Bound
    hidden_upper: Bound | None = None
    mu: float
    epsilon: float
    lower: Bounds
    runs: int
    canaries: int
    runs_needed: Mapping[float, int | None]
    seconds: float
    bytes: int
    speed: Speed
    device: str
    notices: tuple[str, ...] = ()

    @property
    def uppers(self) -> tuple[Bound, ...]:
        """All upper bounds."""
        return (self.upper,) if self.hidden_upper is None else (self.upper, self.hidden_upper)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "upper": [bound.to_dict() for bound in self.uppers],
            "predicted_mu": self.mu if math.isfinite(self.mu) else "inf",
            "predicted_epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "prediction_assumes": PREDICTION,
            "expected_lower": [bound.to_dict() for bound in self.lower],
            "runs": self.runs,
            "canaries": self.canaries,
            "runs_needed": {f"{share:g}": runs for share, runs in self.runs_needed.items()},
            "seconds": round(self.seconds, 3),
            "bytes": self.bytes,
            "tile_size": self.speed.tile_size,
            "workers": self.speed.workers,
            "device": self.device,
            "notices": list(self.notices),
        }


def plan(
    mechanism: DPSGD | str,
    adversary: Adversary | str | None = None,
    *,
    runs: int = 5000,
    canaries: int = 1,
    insertion: Insertion | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    speed: Speed | None = None,
) -> Plan:
    """Predict an audit: bounds, runs, time and memory. Arguments as for `dpaudit.audit`.

    A few steps of one tile are timed on this machine. Simulations by the adversary stop after half
    a second, and their duration is extrapolated.

    See also: `dpaudit.lower_bounds.prediction`, for the bounds alone and without torch.
    """
    began = time.perf_counter()
    from dpaudit.engine.simulation import shortened

    insertion = Insertion() if insertion is None else insertion
    with shortened(_SIMULATION_SECONDS) as simulations:
        planned = MechanismGame(
            mechanism,
            adversary,
            runs=runs,
            canaries=canaries,
            insertion=insertion,
            seed=seed,
            speed=speed,
        )
    crafting = time.perf_counter() - began + simulations.saved
    prepared, described = planned.prepared, planned.description
    mechanism, game = prepared.game.mechanism, prepared.game
    settled, workers = prepared.speed, prepared.speed.workers or 1
    timing = _time_steps(prepared)
    rounds = math.ceil(prepared.tiles / workers)
    steps, adversary = mechanism.steps, game.adversary
    noisy, standard = described.noisy_steps(steps), adversary.threat_model is ThreatModel.STANDARD
    mu = _expected_mu(mechanism, insertion, noisy["noise_multiplier"] if standard else None)
    notices = [*prepared.checked.notices, *timing.notices]
    if simulations.played < simulations.asked:
        notices.append(
            "The time of the adversary's simulations is extrapolated from "
            f"{simulations.played:,} of {simulations.asked:,} steps."
        )
    if not standard and not isinstance(mechanism.optimizer, SGD):
        notices.append(NONLINEAR.format(mechanism.optimizer))
    return Plan(
        upper=upper_bound(**noisy, delta=delta),
        hidden_upper=described.hidden_upper(steps, delta=delta),
        mu=mu,
        epsilon=gaussian_epsilon(delta, mu),
        lower=Bounds(
            bounds=tuple(
                expected_bound(
                    mu, scores=runs * canaries, delta=delta, confidence=confidence, method=method
                )
                for method in METHODS_OF_AUDITS
                if delta > 0 or METHODS[method].family is not GAUSSIAN
            )
        ),
        runs=runs,
        canaries=canaries,
        runs_needed=_runs_needed(mu, canaries, delta, confidence),
        seconds=crafting + timing.setup + rounds * game.horizons[-1] * timing.step,
        bytes=prepared.tile_size * workers * prepared.cost.bytes,
        speed=settled,
        device=planned.device,
        notices=tuple(notices),
    )


def _expected_mu(mechanism: DPSGD, insertion: Insertion, iterate_noise: float | None) -> float:
    """The mu of the scores that the plan expects."""
    insertions, steps = insertion.count(mechanism.steps), mechanism.steps
    if iterate_noise is not None:
        noise, steps = iterate_noise, insertions
    else:
        released = noise_of_released_model(mechanism, insertion)
        noise = mechanism.noise_multiplier if released is None else released
    return predicted_mu(
        noise_multiplier=noise,
        steps=steps,
        insertions=insertions,
        sampling_rate=mechanism.sampling_rate,
    )


def _runs_needed(
    mu: float, canaries: int, delta: float, confidence: float
) -> dict[float, int | None]:
    needed: dict[float, int | None] = {}
    for share in SHARES if delta > 0 else ():
        scores = scores_needed(mu, share=share, delta=delta, confidence=confidence)
        needed[share] = None if scores is None else math.ceil(scores / canaries)
    return needed


@final
@dataclass(frozen=True, kw_only=True)
class _Timing:
    """Seconds before the first step, seconds of a step of one tile, and notices."""

    setup: float
    step: float
    notices: tuple[str, ...]


def _time_steps(prepared: Prepared) -> _Timing:
    """Time a few steps of the first tile, compiled if the audit would be."""
    import torch

    from dpaudit.engine.compiling import CHECKED_CALLS, numerics
    from dpaudit.engine.starting_points import initial_parameters
    from dpaudit.games.tiles import engine_of

    began = time.perf_counter()
    game, speed, size = prepared.game, prepared.speed, prepared.tile_size
    device = speed.torch_device()
    runs = torch.arange(size)
    start = initial_parameters(game.mechanism, seed=game.seed, runs=runs, dtype=speed.dtype)
    with numerics(speed.precision, device):
        engine = engine_of(prepared, runs=size)
        steps = engine.states(start, runs, torch.zeros(size, game.canaries.count))
        # The first step compiles, and the first compiled steps are checked: both are slow.
        for _ in islice(steps, CHECKED_CALLS if speed.compile else 1):
            pass
        _wait(device)
        setup, timed, steps_done = time.perf_counter() - began, time.perf_counter(), 0
        for _ in islice(steps, _PROBE_STEPS):
            _wait(device)
            steps_done += 1
            if time.perf_counter() - timed > _PROBE_SECONDS:
                break
        one_step = (time.perf_counter() - timed) / max(1, steps_done)
    return _Timing(setup=setup, step=one_step, notices=engine.notices)


def _wait(device: Any) -> None:
    """Wait for the GPU, which works asynchronously, before reading the clock."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


MOST_RUNS = 1_000_000
"""Largest number of runs that a plan considers."""

_UNLUCKY = 0.1
"""Probability that the scores look closer than planned, and that the pilot is as unlucky."""


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
        effect = f"mu = {self.mu:.3g}, from {self.pilot} pilot trainings"
        if self.runs is None:
            reason = (
                "the scores hardly depend on the canary. Use a better score or more canaries."
                if self.mu < 1
                else "the claim allows nearly any scores. Audit fewer steps, with their claim."
            )
            most = f"More than {MOST_RUNS:,} runs would be needed to find {wanted}"
            return f"{most} ({effect}): {reason}"
        most = "many more" if self.cautious_runs is None else f"{self.cautious_runs:,}"
        range_ = "" if most == f"{self.runs:,}" else f"; {most} if the pilot is unlucky"
        where = f" in every tensor (most runs: {self.weakest})" if self.weakest else ""
        return (
            f"{self.runs:,} runs find {wanted}{where} ({effect}{range_}). Use the same batches and "
            "starting point in all runs: only the noise may vary."
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
    policy: Policy = CONFIRMED,
    pilot: int = 6,
    seed: int = 0,
) -> TrainingPlan:
    """The number of runs with which `dpaudit.audit` finds too little noise.

    Every pilot seed is trained with and without the canary. The difference shows the effect of the
    canary almost without noise, and the spread over seeds shows the noise.

    Arguments:
        train: The training function, as for `dpaudit.audit`.
        claim: The claim that the audit will test.
        canary: As for `dpaudit.audit`.
        adversary: As for `dpaudit.audit`.
        initial: As for `dpaudit.audit`.
        detect: Fraction of the claimed noise that is to be found; 0.5 means noise halved.
        power: Probability with which it is to be found.
        policy: When a small p-value is a violation; by default fresh runs confirm it.
        pilot: Number of pilot seeds, each of which is trained twice; at least 3.
        seed: Random seed.

    Example:
        >>> def train(canary, inserted, seed):
        ...     return inserted + np.random.default_rng(seed).normal()
        >>> plan_training(train, claim=Claim.from_mu(1.0)).runs in range(20, 400)
        True
    """
    if not isinstance(claim, Claim):
        raise InvalidInput(
            f"claim must be a Claim, such as Claim.from_mu(1.0), got {_validate.shown(claim)}"
        )
    _validate.between("detect", detect, 0, 1)
    _validate.between("power", power, 0, 1)
    pilot = _validate.integer("pilot", pilot, at_least=3)
    check_function(train, canary)
    names = canary.names if isinstance(canary, CraftedCanary) else ()
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
    mu, tests = max(mu, 0.0), max(1, len(names))
    needed = partial(
        _runs, claim, detect=detect, each=each, power=power, policy=policy, tests=tests
    )
    runs, cautious = needed(mu), needed(mu * _least_share(freedom))
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
                kind, score = job.scorer.score(job.returned(run, chosen))
            except UnscorableReturn:
                raise
            except (Exception, SystemExit) as error:
                raise TrainingFailed(
                    f"the pilot training of run {run} failed with {type(error).__name__}: "
                    f"{error}\n{traceback_of(error)}"
                ) from error
            job = job.pinned(kind)
            pair.append(score)
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

    return float(np.sqrt(chi2.ppf(_UNLUCKY, freedom) / freedom))


def _runs(
    claim: Claim,
    mu: float,
    *,
    detect: float,
    each: float,
    power: float,
    policy: Policy,
    tests: int,
) -> int | None:
    """The smallest even number of runs, to about 5 %, after which an audit has this power.

    An audit reads its power from its own scores, which look closer than they are in half of the
    audits: the number is such that 9 of 10 audits of a correct training have the power, if ``mu``
    is right. Scores that are farther apart than the claim allows count as if they were not, as in
    the audit.
    """
    sizes = np.unique(np.round(np.geomspace(2, MOST_RUNS, 270) / 2).astype(int) * 2)
    allowed, unlucky = allowed_separation(claim), float(ndtri(_UNLUCKY))

    def enough(runs: int) -> bool:
        scores = max(1, round(each * runs))
        # The standard error of the distance of two normal samples, in their standard deviations.
        error = math.sqrt((2 + mu**2 / 4) / scores)
        seen = min(max(mu + unlucky * error, 0.0), allowed)
        return power_of(claim, seen / detect, scores=scores, policy=policy, tests=tests) >= power

    place = bisect_left(range(len(sizes)), True, key=lambda i: enough(int(sizes[i])))
    return None if place == len(sizes) else int(sizes[place])
