"""Bounds on every landscape after one insertion, each against a method that shares no code."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpaudit.upper_bounds import HiddenState, upper_bound
from dpaudit.upper_bounds.hidden_state import one_clean_step_delta
from dpaudit_paper.landscapes import (
    Constant,
    LandscapeProcess,
    Threshold,
    exact_privacy,
    fitted_moving_threshold,
    pairs,
)
from dpaudit_paper.landscapes.moving_threshold import forward
from dpaudit_paper.landscapes.one_insertion import (
    PairBound,
    _convolved,
    advantage,
    after_one_clean_step,
    at_most,
    composed_at_most,
    lasts,
    one_clean_step,
    pair_bound,
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
    assert ours == pytest.approx(theirs, rel=5e-4, abs=1e-15)
    assert (ours >= theirs * (1 - 1e-8)).all()
    flat = process(sigma, batch)
    moving = exact_privacy(flat.with_landscape(fitted_moving_threshold(flat, delta=DELTA)))
    assert after_one_clean_step(flat) == pytest.approx(float(moving.epsilon[-1]), rel=1e-5)


def test_upper_ends_fall_with_the_steps_and_stay_above_the_moving_threshold() -> None:
    flat = process(steps=4)
    upper = at_most(flat, delta=DELTA)
    assert upper[1] == after_one_clean_step(flat)
    assert (np.diff(upper) < 0).all()
    for steps in (3, 4):
        shorter = process(steps=steps)
        chosen = fitted_moving_threshold(shorter, delta=DELTA)
        kept = float(exact_privacy(shorter.with_landscape(chosen)).epsilon[-1])
        assert kept < upper[steps - 1] < kept * 1.0035


@pytest.mark.parametrize("reach", [0.25, 1.0, 3.0])
def test_the_bound_of_pairs_after_two_clean_steps_is_the_exact_one(reach) -> None:
    """The matching against the best test of one clean step, which attains the maximum."""
    logs = np.array([-1.0, 0.0, 1.0, 3.0])
    for node in (0, 10, 27, 67):
        bound = pair_bound(reach, 2)(np.full(logs.size, node), logs)
        apart = PairBound.DISTANCES[node] + 2 * reach
        exact = one_clean_step(logs, apart=apart, before=1.0, noise=1.0, reach=reach)
        assert bound == pytest.approx(exact, rel=1e-2, abs=1e-9)
        assert (bound >= exact * (1 - 1e-4)).all()  # the exact value is rounded outwards, too


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_no_random_landscape_exceeds_the_bound_of_pairs(steps) -> None:
    """Random test sets and moves on a grid; acceptance probabilities of all pairs of points."""
    cell, reach = 0.075, 0.7875  # a move by ten cells, and half a cell to the middle of a cell
    x = cell * np.arange(-160, 161)
    edges = np.append(x - cell / 2, x[-1] + cell / 2)
    kernel = np.diff(ndtr(edges - x[:, None]), axis=1)
    inner = np.flatnonzero(np.abs(x) < 3)
    apart = np.abs(np.subtract.outer(inner, inner))  # a cell is as wide as a node of the bound
    random = np.random.default_rng(steps)
    for trial in range(40):
        accepted = (np.sin(random.uniform(0.1, 3) * x + random.uniform(0, 7)) > 0).astype(float)
        if trial % 2:
            accepted = (x > random.uniform(-1, 1)).astype(float)
        for _ in range(steps):
            moves = random.integers(-10, 11, x.size)
            if trial % 4 > 1:
                moves = np.where(x > random.uniform(-1, 1), 10, -10)
            accepted = (kernel @ accepted)[np.clip(np.arange(x.size) + moves, 0, x.size - 1)]
        chosen = accepted[inner]
        for log in (0.0, 0.5, 2.0, 4.0):
            kept = chosen[:, None] - math.exp(log) * chosen
            bound = pair_bound(reach, steps)(apart, np.full(apart.shape, log))
            assert (kept <= bound + 1e-9).all()


def test_composed_bounds_agree_with_the_accountant_and_fall_with_the_period() -> None:
    """At a period of 2 both bounds are the same theorem, computed by different code."""
    periodic = dataclasses.replace(process(4.0, 2, steps=40), period=2)
    ours = composed_at_most(periodic, delta=DELTA)
    theirs = upper_bound(
        noise_multiplier=4,
        steps=40,
        delta=DELTA,
        hidden_state=HiddenState(period=2, batch_size=2),
        accountant="hidden-state-clipping",
    )
    assert ours == pytest.approx(theirs.epsilon, rel=2e-3)
    longer = dataclasses.replace(process(4.0, 2, steps=80), period=4)
    assert composed_at_most(longer, delta=DELTA) < 0.97 * ours


@pytest.mark.parametrize("scaling", ["dpsgd", "paper"])
def test_the_advantage_agrees_with_densities(scaling) -> None:
    middle = dataclasses.replace(process(2.0, 4, 4, scaling), landscape=Threshold())
    exact = [pair.delta(0.0) for pair in pairs(middle)]
    assert advantage(middle) == pytest.approx(exact, abs=1e-8)


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


def test_errors_of_convolutions_are_below_their_bound() -> None:
    random = np.random.default_rng(0)
    masses, kernel = random.random(3000), random.random(500)
    masses, kernel = masses / masses.sum(), kernel / kernel.sum()
    result, wrong = _convolved(masses, kernel)
    direct = np.convolve(masses.astype(np.longdouble), kernel.astype(np.longdouble))
    assert 0 < np.abs(result - direct).sum() < wrong < 1e-11
