"""Bounds on every landscape after one insertion, each against a method that shares no code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.upper_bounds.hidden_state import one_clean_step_delta
from dpaudit_paper.landscapes import (
    Constant,
    LandscapeProcess,
    exact_privacy,
    fitted_moving_threshold,
)
from dpaudit_paper.landscapes.moving_threshold import forward
from dpaudit_paper.landscapes.one_insertion import (
    advantage,
    after_one_clean_step,
    at_most,
    lasts,
    one_clean_step,
)

DELTA = 1e-5


def process(sigma=1.0, batch=1, steps=2, scaling="dpsgd") -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        scaling=scaling,
        landscape=Constant(),
    )


@pytest.mark.parametrize(("sigma", "batch"), [(1.0, 1), (4.0, 4), (8.0, 1)])
def test_one_clean_step_agrees_with_the_accountant_and_is_attained(sigma, batch) -> None:
    epsilon = np.array([0.1, 0.5, 2.0])
    ours = one_clean_step(epsilon, apart=1.0, before=sigma, noise=sigma, reach=batch)
    theirs = one_clean_step_delta(epsilon, sigma=sigma, reach=batch, step_noise=sigma)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-15)
    flat = process(sigma, batch)
    moving = exact_privacy(flat.with_landscape(fitted_moving_threshold(flat, delta=DELTA)))
    assert after_one_clean_step(flat) == pytest.approx(float(moving.epsilon[-1]), rel=1e-5)


def test_the_bound_for_three_steps_lies_between_the_landscape_and_one_clean_step() -> None:
    flat = process(steps=3)
    moving = exact_privacy(flat.with_landscape(fitted_moving_threshold(flat, delta=DELTA)))
    upper = at_most(flat, delta=DELTA, cells=10)
    assert float(moving.epsilon[-1]) < upper < after_one_clean_step(flat) - 0.05


def test_the_advantage_is_that_of_the_threshold_at_one_half() -> None:
    """The absorbed walk against the forward pass at epsilon 0, and a simulated mirrored pair."""
    flat = process(1.5, 1, steps=5)
    exact = advantage(flat)
    for steps in (1, 2, 5):
        assert exact[steps - 1] == pytest.approx(forward(process(1.5, 1, steps), 0.0)[0], rel=1e-4)
    random = np.random.default_rng(0)
    position = 0.5 + 1.5 * random.standard_normal(400_000)
    sign = np.ones(position.size)
    for _ in range(4):
        position += np.where(position > 0, 1.0, -1.0) + 1.5 * random.standard_normal(position.size)
    # Right of the threshold with the canary, minus its mirror image: without it.
    seen = (np.sign(position) * sign).mean()
    assert exact[-1] == pytest.approx(seen, abs=5 / math.sqrt(position.size))


def test_what_lasts_is_below_what_is_kept_now() -> None:
    flat = process(steps=8)
    guess = 3.93
    now = exact_privacy(flat.with_landscape(fitted_moving_threshold(flat, delta=DELTA)))
    rough, fine = (lasts(flat, delta=DELTA, cells=cells, guess=guess) for cells in (100, 400))
    assert rough < fine < float(now.epsilon[-1])
    assert fine > 3.85
