"""Plans of adversaries that simulate while they craft."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch import Tensor

from dpaudit.adversaries import GradientAttack
from dpaudit.audits import plan
from dpaudit.engine import Speed, simulate
from dpaudit.engine.simulation import shortened
from dpaudit.engine.training import Engine
from dpaudit.testing import easy_training

LONG = replace(easy_training(noise_multiplier=2.0), steps=5000)


def test_a_plan_does_not_simulate_in_full() -> None:
    speed = Speed(device="cpu", compile=False, workers=1)
    found = plan(LONG, GradientAttack(), runs=4, delta=0.0, speed=speed)
    assert any("5,000 steps" in notice for notice in found.notices)
    assert found.seconds > 0


def test_short_simulations_extrapolate_their_duration() -> None:
    with shortened(0.01) as short:
        simulate(LONG, noisy=False, runs=1, seed=0)
    assert 0 < short.played < short.asked == LONG.steps
    assert short.saved > 0.01
    whole = simulate(easy_training(noise_multiplier=2.0), noisy=False, runs=1, seed=0)
    assert whole.models.isfinite().all()


def test_a_slow_first_step_is_not_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    states = Engine.states

    def slow_start(self: Engine, *given: Tensor) -> Iterator[Tensor]:
        time.sleep(0.1)  # as torch does when it prepares itself
        yield from states(self, *given)

    monkeypatch.setattr(Engine, "states", slow_start)
    with shortened(0.05) as short:
        simulate(LONG, noisy=False, runs=1, seed=0)
    assert short.played > 1
    assert short.saved < 0.1 * (LONG.steps - 1) / 2  # every step like the first: 500 s
