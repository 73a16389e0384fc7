"""Landscapes that differ from batch to batch: exact, as a chain, simulated, by importance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds.hidden_state import one_clean_step_delta
from dpaudit_paper.landscapes import (
    Constant,
    LandscapeProcess,
    MovingThreshold,
    ReadingWells,
    Resolution,
    Threshold,
    densities,
    exact_privacy,
    fitted_moving_threshold,
    fitted_reading_wells,
    simulate,
)

DELTA = 1e-5


def process(sigma=4.0, batch=128, steps=25, period=None, landscape=None) -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        period=period,
        scaling="dpsgd",
        landscape=Constant() if landscape is None else landscape,
    )


@pytest.mark.parametrize(
    ("sigma", "batch", "expected"),
    [
        (1, 1, 3.929),
        (1, 2, 4.341),
        (2, 1, 1.367),
        (4, 1, 0.422),
        (4, 4, 0.841),
        (8, 1, 0.134),
    ],
)
def test_a_moving_threshold_keeps_more_than_any_fixed_landscape(sigma, batch, expected) -> None:
    flat = process(sigma, batch)
    chosen = fitted_moving_threshold(flat, delta=DELTA)
    found = exact_privacy(flat.with_landscape(chosen), delta=DELTA)
    assert found.epsilon[-1] == pytest.approx(expected, abs=1e-3)
    # Two grids agree, and no landscape can exceed the bound of one clean step.
    assert found.error < 1e-6
    most = one_clean_step_delta(found.epsilon[1:], sigma=sigma, reach=batch, step_noise=sigma)
    assert (most >= DELTA * (1 - 1e-6)).all()


def test_a_moving_threshold_that_stands_still_is_a_threshold() -> None:
    still = process(2.0, 2, 6, landscape=MovingThreshold(places=(0.7,)))
    fixed = still.with_landscape(Threshold(at=0.7))
    assert exact_privacy(still).epsilon == pytest.approx(exact_privacy(fixed).epsilon, rel=1e-9)
    one, other = simulate(still, runs=500, seed=3), simulate(fixed, runs=500, seed=3)
    assert (one.inserted_scores == other.inserted_scores).all()


@pytest.mark.parametrize("period", [2, 5])
def test_the_chain_of_reading_wells_is_the_exact_process(period: int) -> None:
    wells = ReadingWells(period=period, width=32.0, unit=2.0, most=4)
    chosen = process(batch=122, steps=6 * period, period=period, landscape=wells)
    chain = exact_privacy(chosen, delta=DELTA)
    assert chain.method == "chain"
    for order in (8, 10):
        resolution = Resolution(order=order, mass_tolerance=1e-8)
        for step, pair in enumerate(densities(chosen, delta=DELTA, resolution=resolution), 1):
            exact = pair.epsilon(DELTA)
            # The cell is what the position is rounded to: it never says more, and little less.
            assert chain.epsilon[step - 1] <= exact + 1e-6
            if (step - 1) % period:
                assert chain.epsilon[step - 1] == pytest.approx(exact, abs=1e-4)
    after = wells.after(6, noise_multiplier=4.0)
    assert after.epsilon(DELTA) == pytest.approx(float(chain.epsilon[-1]))


@pytest.mark.parametrize(
    ("width", "most", "unit", "batch", "expected"),
    [(30.0, 3, 2.6, 84, 23.091), (32.0, 4, 2.0, 122, 23.397)],
)
def test_importance_sampling_agrees_with_the_chain(width, most, unit, batch, expected) -> None:
    wells = ReadingWells(period=2, width=width, unit=unit, most=most)
    chosen = process(batch=batch, steps=500, period=2, landscape=wells)
    exact = wells.after(250, noise_multiplier=4.0)
    assert exact.epsilon(DELTA) == pytest.approx(expected, abs=0.02)
    cells, weights = tilted(chosen, width, runs=20_000, mean=2.0)
    middle = len(exact.canary) // 2
    threshold = int(np.median(cells))
    for canary, mass in enumerate((exact.without, exact.canary)):
        found = weights[canary] * (cells >= threshold)
        error = found.std() / math.sqrt(len(found))
        assert found.mean() == pytest.approx(mass[middle + threshold :].sum(), abs=4 * error)
        assert error < 0.1 * found.mean()


def tilted(chosen: LandscapeProcess, width: float, *, runs: int, mean: float):
    """Final cells of runs whose insertions have another mean, and their likelihood ratios."""
    random, sigma = np.random.default_rng(0), chosen.noise_multiplier
    position, logs = np.zeros(runs), np.zeros((2, runs))
    for step in range(1, chosen.steps + 1):
        if step > 1:
            position = position + chosen.drift(position, step=step)
        noise = sigma * random.standard_normal(runs)
        if chosen.inserts(step):
            noise += mean
            for canary in range(2):
                logs[canary] += ((noise - mean) ** 2 - (noise - canary) ** 2) / (2 * sigma**2)
        position = position + noise
    return np.floor(position / width + 0.5), np.exp(logs)


@pytest.mark.parametrize("period", [5, 25])
def test_reading_wells_at_the_papers_batch_size(period: int) -> None:
    """At least 20, 21, 22, 23 of 23.995 at small batches, and 23.4 at B = 128."""
    for batch, least in ((27, 20), (45, 21), (51, 22), (84, 23), (128, 23.39)):
        flat = process(batch=batch, steps=250 * period, period=period)
        wells = fitted_reading_wells(flat, delta=DELTA)
        epsilon = wells.after(250, noise_multiplier=4.0).epsilon(DELTA)
        assert least <= epsilon < 23.9954
        assert wells.least_reach <= batch


def test_simulated_wells_have_the_distribution_of_the_chain() -> None:
    wells = ReadingWells(period=5, width=32.0, unit=2.0, most=4)
    chosen = process(batch=122, steps=50, period=5, landscape=wells)
    scores = simulate(chosen, runs=20_000, seed=1)
    exact = wells.after(10, noise_multiplier=4.0)
    middle = len(exact.canary) // 2
    for found, mass in (
        (scores.inserted_scores, exact.canary),
        (scores.other_scores, exact.without),
    ):
        cells = np.floor(found / 32.0 + 0.5)
        expected = (mass * (np.arange(len(mass)) - middle)).sum()
        assert cells.mean() == pytest.approx(expected, abs=4 * cells.std() / 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"period": 4}, "period must be 5"),
        ({"batch_size": 121}, "batch_size must be at least 122"),
        ({"scaling": "paper"}, "scaling must be 'dpsgd'"),
    ],
)
def test_a_process_that_cannot_follow_is_refused(change, message) -> None:
    wells = ReadingWells(period=5, width=32.0, unit=2.0, most=4)
    chosen = replace(process(batch=122, steps=10, period=5, landscape=wells), **change)
    with pytest.raises(InvalidInput, match=message):
        exact_privacy(chosen)


def test_what_a_fit_needs() -> None:
    with pytest.raises(InvalidInput, match="period must be at least 2"):
        fitted_reading_wells(process())
    with pytest.raises(InvalidInput, match="period must be None"):
        fitted_moving_threshold(process(period=5))
    with pytest.raises(InvalidInput, match="batch_size must be larger"):
        fitted_reading_wells(process(batch=4, period=5))
    with pytest.raises(InvalidInput, match="width must be above"):
        ReadingWells(period=5, width=10.0, unit=4.0, most=3)
