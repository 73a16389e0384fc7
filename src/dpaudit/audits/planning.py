"""Predictions of an audit: its bounds, runs, time and memory, before anything is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from dpaudit.audits.assessment import lower_methods
from dpaudit.audits.auditing import make_game
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import DpauditError
from dpaudit.executors import Executor, Lost, Player, PlayTile
from dpaudit.lower_bounds import METHODS
from dpaudit.lower_bounds.prediction import expected_bound, predicted_mu, scores_needed
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.final_model import noise_of_released_model
from dpaudit.mechanisms.optimizers import SGD
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.threat_models import Adversary
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
    mechanism: DPSGD,
    adversary: Adversary,
    *,
    runs: int = 5000,
    canaries: int = 1,
    insertion: Insertion | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    speed: Speed | None = None,
    executor: Executor | None = None,
) -> Plan:
    """Predict an audit: bounds, runs, time and memory. Arguments as for `dpaudit.audit`.

    With an executor the steps are timed on its machines. Jobs of SLURM may wait in a queue, so
    they are timed here, and the duration holds if those machines are as fast as this one.

    A few steps of one tile are timed. Simulations by the adversary stop after half a second, and
    their duration is extrapolated.

    See also: `dpaudit.lower_bounds.prediction`, for the bounds alone and without torch.
    """
    began = time.perf_counter()
    from dpaudit.engine.simulation import shortened

    insertion = Insertion() if insertion is None else insertion
    capacity = None if executor is None else executor.capacity()
    with shortened(_SIMULATION_SECONDS) as simulations:
        game, asked = make_game(
            mechanism,
            adversary,
            runs=runs,
            canaries=canaries,
            insertion=insertion,
            seed=seed,
            horizons=(),
            speed=speed,
            capacity=capacity,
        )
    crafting = time.perf_counter() - began + simulations.saved
    from dpaudit.audits._describing import describe_game, device_name
    from dpaudit.games import prepare

    prepared = prepare(game, asked, capacity)
    settled, workers = prepared.speed, prepared.speed.workers or 1
    timing = _timing(prepared, executor)
    rounds = math.ceil(prepared.tiles / workers)
    steps, described = mechanism.steps, describe_game(prepared)
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
                for method in lower_methods(clustered=False)
                if delta > 0 or not METHODS[method].needs_positive_delta
            )
        ),
        runs=runs,
        canaries=canaries,
        runs_needed=_runs_needed(mu, canaries, delta, confidence),
        seconds=crafting + timing.setup + rounds * game.horizons[-1] * timing.step,
        bytes=prepared.tile_size * workers * prepared.cost.bytes,
        speed=settled,
        device=device_name(settled, capacity),
        notices=tuple(notices),
    )


def _expected_mu(mechanism: DPSGD, insertion: Insertion, seen: float | None) -> float:
    """The mu of the scores that the plan expects.

    Arguments:
        mechanism: The training.
        insertion: The steps at which canaries are inserted.
        seen: The noise multiplier of the iterates, if the adversary sees them: it reads only the
            insertion steps, without other noise. `None` if it sees the final model.
    """
    insertions, steps = insertion.count(mechanism.steps), mechanism.steps
    if seen is not None:
        noise, steps = seen, insertions
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
    found: dict[float, int | None] = {}
    for share in SHARES if delta > 0 else ():
        scores = scores_needed(mu, share=share, delta=delta, confidence=confidence)
        found[share] = None if scores is None else math.ceil(scores / canaries)
    return found


@final
@dataclass(frozen=True, kw_only=True)
class _Timing:
    """Seconds before the first step, seconds of a step of one tile, and notices."""

    setup: float
    step: float
    notices: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class _StepTimer(Player):
    """Times a few steps of the first tile, where an executor plays it."""

    prepared: Prepared

    def open(self) -> PlayTile:
        return lambda tile, notify: _time_steps(self.prepared)


def _timing(prepared: Prepared, executor: Executor | None) -> _Timing:
    """Time a few steps on the executor's machines, or here if jobs would wait in a queue."""
    if executor is None:
        return _time_steps(prepared)
    if not executor.immediate:
        return _time_steps(prepared.at(replace(prepared.speed, device="auto")))
    timer, notices = _StepTimer(prepared=prepared), list[str]()
    ((_, found),) = executor.play(timer, [0], notices.append)
    if isinstance(found, Lost):
        raise DpauditError(f"no machine of the executor could play a tile: {found.reason}")
    timing: _Timing = found
    return timing


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
        steps = engine.play(start, runs, torch.zeros(size, game.canaries.count))
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
