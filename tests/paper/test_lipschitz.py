"""Lipschitz constants of steps: estimates of networks, and maps that attain the upper bound."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from dpaudit.curves import gaussian_epsilon
from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.testing import easy_training
from dpaudit.upper_bounds.hidden_state import shifted_mu
from dpaudit_paper.landscapes import LandscapeProcess, exact_privacy
from dpaudit_paper.smooth_wells import LinearMaps


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


@pytest.mark.parametrize("c", [1.0, 1.1, 2.0])
def test_linear_maps_attain_the_upper_bound_if_moves_may_be_long(c: float) -> None:
    maps = LinearMaps.fitted(period=5, lipschitz=c, reach=1e9, radius=1.0)
    assert maps.gains == pytest.approx([c**j for j in range(5)])
    pattern = np.arange(5 * 40) % 5 == 0
    assert maps.mu(40, 1.0) == pytest.approx(shifted_mu(c, pattern))


def test_linear_maps_are_lipschitz_and_within_reach() -> None:
    maps = LinearMaps.fitted(period=6, lipschitz=1.3, reach=8.0, radius=20.0)
    places = np.linspace(-100.0, 100.0, 4001)
    for step in range(2, 14):
        landed = places + maps.at(step).drift(places, np.inf)
        assert np.abs(landed - places).max() <= 8.0 + 1e-9
        assert (np.diff(landed) / np.diff(places)).max() <= 1.3 + 1e-9
        assert (np.diff(landed) > 0).all()


def test_the_exact_epsilon_of_linear_maps_is_gaussian() -> None:
    maps = LinearMaps.fitted(period=3, lipschitz=1.5, reach=64.0, radius=50.0)
    process = LandscapeProcess(
        noise_multiplier=1.0,
        batch_size=64,
        steps=9,
        period=3,
        scaling="dpsgd",
        landscape=maps,
    )
    found = exact_privacy(process)
    assert found.epsilon[-1] == pytest.approx(gaussian_epsilon(1e-5, maps.mu(3, 1.0)), rel=1e-6)
