"""The searches: exact gradients, nothing named is better, and where the best threshold lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpaudit.errors import InvalidInput
from dpaudit.landscapes import (
    Constant,
    Threshold,
    best_threshold,
    decision_point,
    densities,
    search_batch_landscapes,
    search_landscape,
    threshold_search,
)
from dpaudit.landscapes.adjoint import DriftGrid
from dpaudit.mechanisms.landscape import LandscapeProcess, Scaling


def _process(sigma: float, batch: int, steps: int, scaling: Scaling = "paper") -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        scaling=scaling,
        landscape=Threshold(),
    )


def test_the_adjoint_gradient_is_the_derivative() -> None:
    grid = DriftGrid(_process(2, 2, 6), 1e-5)
    generator = np.random.default_rng(0)
    drift = grid.sample(Threshold(at=3.0)) * generator.uniform(0.3, 0.9, len(grid.cells))
    value, gradient = grid.value_and_gradient(drift)
    assert value == pytest.approx(grid.epsilon(drift), rel=1e-12)
    for cell in np.argsort(-np.abs(gradient))[:12:3]:
        step = np.zeros_like(drift)
        step[cell] = 1e-5
        slope = (grid.epsilon(drift + step) - grid.epsilon(drift - step)) / 2e-5
        assert gradient[cell] == pytest.approx(slope, rel=1e-5)


def test_the_searchs_grid_agrees_with_the_fine_one() -> None:
    process = _process(2, 2, 6)
    grid = DriftGrid(process, 1e-5)
    drift = grid.sample(Threshold(at=3.0)) * np.linspace(0.3, 0.9, len(grid.cells))
    *_, last = densities(process.with_landscape(grid.table(drift)))
    assert grid.epsilon(drift) == pytest.approx(last.one_sided_epsilon(1e-5), rel=1e-3)


def test_best_replies_never_have_a_negative_gain() -> None:
    grid = DriftGrid(_process(2, 2, 6), 1e-5)
    drift = grid.sample(Constant())
    reply, gain = grid.best_replies(drift)
    best = int(np.argmax(gain))
    one_cell = drift.copy()
    one_cell[best] = reply[best]
    assert grid.epsilon(one_cell) > grid.epsilon(drift)


@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
@pytest.mark.parametrize(("sigma", "batch"), [(1, 2), (4, 1), (8, 4), (2, 16)])
def test_the_search_is_at_least_as_good_as_every_name(
    sigma: float, batch: int, scaling: Scaling
) -> None:
    found = search_landscape(_process(sigma, batch, 8, scaling), random_starts=1)
    names = {named.name: named.epsilon for named in found.named}
    assert set(names) == {"constant", "threshold", "wells", "staircase"}
    assert found.epsilon >= max(names.values())
    assert found.epsilon <= found.privacy.accountant + 1e-9
    assert found.privacy.error < 1e-3


def test_every_start_ends_at_the_same_height() -> None:
    found = search_landscape(_process(4, 2, 10, "dpsgd"), random_starts=2)
    after = [start.after for start in found.starts]
    assert len(after) >= 9
    assert max(after) - min(after) < 1e-3 * max(after)
    # That height is a threshold's, moved: well above the one at C/2.
    assert found.moved_threshold.epsilon == pytest.approx(found.epsilon, rel=1e-3)
    (threshold,) = [named.epsilon for named in found.named if named.name == "threshold"]
    assert found.epsilon > 1.3 * threshold


def test_at_t_2_half_c_is_best_for_the_gdp_rule_and_worst_for_the_truth() -> None:
    search = threshold_search(_process(1, 1, 2))
    half = int(np.flatnonzero(search.thresholds == 0.5)[0])
    assert search.best_gdp_rule == 0.5
    assert search.exact[half] == pytest.approx(search.exact.min(), abs=1e-3)
    assert search.exact.max() > search.exact[half] + 1.1
    np.testing.assert_allclose(search.exact, search.exact[::-1], rtol=1e-6)  # mirror images


def test_the_best_threshold_is_the_decision_point_when_nothing_mixes() -> None:
    process = _process(1, 8, 5, "dpsgd")
    assert best_threshold(process).at == pytest.approx(decision_point(process), abs=0.01)


def test_searches_refuse_what_they_cannot_search() -> None:
    periodic = LandscapeProcess(
        noise_multiplier=1, batch_size=2, steps=8, landscape=Threshold(), period=2
    )
    with pytest.raises(InvalidInput, match="period must be left out"):
        search_landscape(periodic)
    with pytest.raises(InvalidInput, match="steps must be at least 2"):
        search_landscape(_process(1, 1, 1))


def test_a_free_search_of_every_batch_finds_the_moving_threshold() -> None:
    process = LandscapeProcess(
        noise_multiplier=4.0, batch_size=4, steps=4, scaling="dpsgd", landscape=Constant()
    )
    found = search_batch_landscapes(process, random_starts=1, seed=3)
    moving = float(found.moving_threshold.epsilon[-1])
    # All starts, the random one included, end at the same epsilon: a little below, on a grid.
    assert set(found.starts) >= {"flat", "random 1"}
    for epsilon in found.starts.values():
        assert epsilon == pytest.approx(moving, rel=0.01)
    assert float(found.privacy.epsilon[-1]) == pytest.approx(max(found.starts.values()), rel=1e-3)
    assert found.epsilon >= moving
    with pytest.raises(InvalidInput, match="period 2"):
        search_batch_landscapes(replace(process, period=2))


def test_a_sweep_of_replies_never_lowers_epsilon() -> None:
    process = LandscapeProcess(
        noise_multiplier=2.0, batch_size=2, steps=4, scaling="dpsgd", landscape=Constant()
    )
    grid = DriftGrid(process, 1e-5)
    drifts = 2.0 * np.random.default_rng(0).uniform(-1, 1, (3, len(grid.cells)))
    before = grid.batch_epsilon(drifts)
    for _ in range(3):
        drifts = grid.batch_replies(drifts)
        after = grid.batch_epsilon(drifts)
        assert after >= before - 1e-9
        before = after
    # The same drift at every step is a fixed landscape.
    still = np.tile(drifts[0], (3, 1))
    assert grid.batch_epsilon(still) == pytest.approx(grid.epsilon(drifts[0]), rel=1e-12)
