"""Lipschitz constants of steps: estimates of networks, and maps that attain the upper bound."""

from __future__ import annotations

import dataclasses
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.sparse import csr_matrix

from dpaudit.curves import gaussian_epsilon
from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.testing import easy_training
from dpaudit.upper_bounds.hidden_state import shifted_mu
from dpaudit_paper.landscapes import Constant, LandscapeProcess
from dpaudit_paper.landscapes.lipschitz_maps import (
    FINAL,
    LinearMaps,
    SmoothReadingWells,
    final_epsilon,
)

DELTA = 1e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_the_norm_of_the_jacobian(clip_norm: float) -> None:
    training = dataclasses.replace(easy_training(), clip_norm=clip_norm)
    start = initial_parameters(training, seed=0, runs=torch.arange(1), dtype=torch.float64)[0]
    indices = training.batches.indices(0, len(training.data))
    features = torch.from_numpy(training.data.features[indices]).double()
    targets = torch.from_numpy(training.data.targets[indices])

    def update(flat: torch.Tensor) -> torch.Tensor:
        gradients = clipped_gradients(training, flat[None], features, targets)[0]
        return flat - training.learning_rate / len(indices) * gradients.sum(0)

    jacobian = np.stack(
        [
            ((update(start + 1e-5 * unit) - update(start - 1e-5 * unit)) / 2e-5).numpy()
            for unit in torch.eye(len(start), dtype=torch.float64)
        ],
        axis=1,
    )
    expected = np.linalg.norm(jacobian, ord=2)
    script = Path(__file__).parents[2] / "benchmarks" / "step_lipschitz.py"
    jacobian_norm = runpy.run_path(str(script))["jacobian_norm"]
    assert jacobian_norm(training, start, step=0) == pytest.approx(expected, rel=1e-6)


def flat(*, sigma=4.0, batch=128, period=5, insertions=250) -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=insertions * period,
        period=period,
        scaling="dpsgd",
        landscape=Constant(),
    )


@pytest.mark.parametrize("c", [1.0, 1.1, 2.0])
def test_linear_maps_attain_the_upper_bound_if_moves_may_be_long(c: float) -> None:
    process = flat(sigma=1.0, batch=10**8, insertions=40)
    maps = LinearMaps.fitted(process, lipschitz=c, delta=DELTA, deviations=3.0)
    assert maps.gains == pytest.approx([c**j for j in range(5)])
    pattern = np.arange(5 * 40) % 5 == 0
    assert maps.mu(40, 1.0) == pytest.approx(shifted_mu(c, pattern))


@pytest.mark.parametrize(("period", "lipschitz"), [(6, 1.3), (25, 1.2)])
def test_linear_maps_are_lipschitz_and_within_reach(period: int, lipschitz: float) -> None:
    maps = LinearMaps.fitted(flat(period=period), lipschitz=lipschitz, delta=DELTA, deviations=3.0)
    # No move is cut by the reach: beyond the radius both sides move equally far.
    assert np.abs(np.diff(np.append(maps.gains, 1.0))).max() * maps.radius <= 128.0
    places = np.linspace(-1000.0, 1000.0, 40_001)
    for step in range(2, 2 * period + 2):
        landed = places + maps.at(step).drift(places, 128.0)
        assert np.abs(landed - places).max() <= 128.0 + 1e-9
        assert (np.diff(landed) / np.diff(places)).max() <= lipschitz + 1e-9
        assert (np.diff(landed) > 0).all()


def on_a_grid(process: LandscapeProcess, *, width: float = 1.0) -> float:
    """Epsilon by transition matrices on a uniform grid: shares no code with the densities."""
    sigma, period = process.noise_multiplier, process.period or 1
    half = 9 * sigma * math.sqrt(process.steps) + 4 * process.steps / period + 3 * process.reach
    grid = np.arange(-half, half, width)
    both = [np.exp(-0.5 * ((grid - mean) / sigma) ** 2) for mean in (0.0, 1.0)]
    both = [masses / masses.sum() for masses in both]
    matrices = {}
    for step in range(2, process.steps + 1):
        inserted = (step - 1) % period == 0
        for canary in range(2):
            key = (step - 1) % period, canary * inserted
            if key not in matrices:
                landed = grid + process.drift(grid, step=step) + canary * inserted
                window = np.arange(-round(10 * sigma / width), round(10 * sigma / width) + 1)
                rows = np.round((landed + half) / width).astype(int)[:, None] + window
                z = (rows * width - half - landed[:, None]) / sigma
                values = np.exp(-0.5 * z * z)
                values /= values.sum(axis=1, keepdims=True)
                columns = np.broadcast_to(np.arange(grid.size)[:, None], rows.shape)
                inside = (rows >= 0) & (rows < grid.size)
                parts = values[inside], (rows[inside], columns[inside])
                matrices[key] = csr_matrix(parts, shape=(grid.size, grid.size))
            both[canary] = matrices[key] @ both[canary]

    def excess(epsilon: float, first: int) -> float:
        return np.maximum(both[first] - math.exp(epsilon) * both[1 - first], 0).sum() - DELTA

    return max(brentq(excess, 0.0, 25.0, args=(first,)) for first in (0, 1))


@pytest.mark.parametrize("lipschitz", [1.1, 2.0])
def test_the_exact_epsilon_of_linear_maps_on_two_grids(lipschitz: float) -> None:
    """Densities and a uniform grid agree; the Gaussian value is an upper end."""
    process = flat(insertions=60, batch=40)
    maps = LinearMaps.fitted(process, lipschitz=lipschitz, delta=DELTA, deviations=2.75)
    chosen = process.with_landscape(maps)
    exact = final_epsilon(chosen, delta=DELTA, resolution=FINAL)
    assert exact == pytest.approx(on_a_grid(chosen), rel=1e-4)
    assert exact <= gaussian_epsilon(DELTA, maps.mu(60, 4.0)) * (1 + 1e-6)


def test_the_exact_epsilon_of_smooth_wells_on_two_grids() -> None:
    process = flat(insertions=12)
    wells = SmoothReadingWells(period=5, width=28.0, unit=7.0, most=1, lipschitz=4.0)
    assert wells.feasible
    assert wells.reach <= 128
    chosen = process.with_landscape(wells)
    exact = final_epsilon(chosen, delta=DELTA, resolution=FINAL)
    assert exact == pytest.approx(on_a_grid(chosen, width=0.25), rel=1e-3)


def test_moments_read_as_a_gaussian_claim_too_much() -> None:
    """A centre half way between the means, as in earlier versions: the tails are not scaled."""
    process = flat(insertions=100)
    maps = LinearMaps.fitted(process, lipschitz=1.1, delta=DELTA, deviations=2.75)
    middle = dataclasses.replace(maps, speed=0.5, radius=min(maps.radius, 150.0))
    exact = final_epsilon(process.with_landscape(middle), delta=DELTA, resolution=FINAL)
    assert exact < gaussian_epsilon(DELTA, maps.mu(100, 4.0)) - 0.05
