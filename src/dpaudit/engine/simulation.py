"""Trainings simulated by an adversary, to learn how much each dimension moves."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from dpaudit import _validate
from dpaudit.engine.compiling import numerics
from dpaudit.engine.noise import Stream
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, Insertion
from dpaudit.threat_models import Canaries


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Simulated:
    r"""How much each dimension moved, shape (parameters,), and the trained models; on the CPU.

    Arguments:
        per_step: :math:`\sqrt{\sum_{r,t} (\theta_{r,t+1} - \theta_{r,t})^2}`.
        final: :math:`\frac1R \sum_r |\theta_{r,T} - \theta_{r,0}|`.
        models: The trained models, shape (runs, parameters); only one if all are identical.
    """

    per_step: Tensor
    final: Tensor
    models: Tensor


@final
@dataclass(kw_only=True)
class Shortened:
    """Simulations that stop early, for `dpaudit.plan`."""

    limit: float  # seconds after the first step after which a simulation stops
    saved: float = 0.0  # seconds that the rest of all simulations would have taken, extrapolated
    played: int = 0  # steps
    asked: int = 0


_shortened: ContextVar[Shortened | None] = ContextVar("shortened", default=None)


@contextlib.contextmanager
def shortened(seconds: float) -> Iterator[Shortened]:
    """Within this context every simulation stops after ``seconds``. Use it only to take times."""
    simulations = Shortened(limit=seconds)
    token = _shortened.set(simulations)
    try:
        yield simulations
    finally:
        _shortened.reset(token)


def simulate(
    mechanism: DPSGD,
    *,
    noisy: bool,
    runs: int,
    seed: int,
    speed: Speed | None = None,
    canaries: Canaries | None = None,
    insertion: Insertion | None = None,
) -> Simulated:
    """Train ``runs`` models with all canaries, if any, and measure how much each dimension moved.

    A noiseless simulation has neither noise nor clipping. A noisy one uses a stream that is
    independent of the game's noise, even with the same seed.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithm 2.
    """
    _validate.integer("runs", runs, at_least=1)
    # In one precision on every device, so that crafted canaries do not depend on the device.
    speed = (Speed(precision="float32") if speed is None else speed).settled()
    # Without noise and from one start all runs are identical.
    alike = not noisy and isinstance(mechanism.initialisation, FixedInitialisation)
    played = 1 if alike else runs
    device = speed.torch_device()
    with numerics(speed.precision, device):
        engine = Engine(
            mechanism,
            runs=played,
            speed=speed,
            canaries=canaries,
            insertion=insertion,
            seed=seed,
            stream=Stream.SIMULATED_NOISE,
            private=noisy,
            compiled=speed.compile is True,
        )
        numbers = torch.arange(played)
        # Other run numbers than the game's, and therefore other fresh initialisations.
        start = initial_parameters(mechanism, seed=seed, runs=numbers + _FAR, dtype=speed.dtype).to(
            device
        )
        squares, before = torch.zeros_like(start[0]), start
        short, began = _shortened.get(), time.perf_counter()
        coins = torch.ones(played, 0 if canaries is None else canaries.count)
        for step, state in enumerate(engine.states(start, numbers, coins), 1):
            squares += (state[0] - before).square().sum(0)
            before = state[0]
            spent = time.perf_counter() - began
            if step == 1:  # slow, because torch prepares itself: not to be extrapolated
                first = spent
            limit = math.inf if short is None else short.limit
            if spent > (_SLOWEST_FIRST * limit if step == 1 else first + limit):
                break
    if short is not None:
        rest = mechanism.steps - step
        short.saved += rest * (spent if step == 1 else (spent - first) / (step - 1))
        short.played, short.asked = short.played + step, short.asked + mechanism.steps
    return Simulated(
        per_step=(squares.sqrt() * math.sqrt(runs / played)).cpu(),
        final=(before - start).abs().mean(0).cpu(),
        models=before.cpu(),
    )


_FAR = 2**31
_SLOWEST_FIRST = 10  # times the limit: only then the first step alone is extrapolated
