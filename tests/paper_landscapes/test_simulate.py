"""The simulated process is the process whose densities were computed."""

from __future__ import annotations

import numpy as np
import pytest
from processes import landscape_process

from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import lower_bound
from dpaudit_paper.landscapes import (
    Landscape,
    Scaling,
    Threshold,
    exact_privacy,
    pairs,
    simulate,
    wells,
)

SMALL = landscape_process(batch=3, steps=12)


@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
@pytest.mark.parametrize("period", [None, 4])
@pytest.mark.parametrize(
    "landscape", [Threshold(), Threshold(away=False), wells(5.0)], ids=lambda s: type(s).__name__
)
def test_simulation_and_exact_densities_agree(
    landscape: Landscape, scaling: Scaling, period: int | None
) -> None:
    process = landscape_process(landscape, batch=3, steps=12, scaling=scaling, period=period)
    scores = simulate(process, runs=400_000, seed=3)
    *_, last = pairs(process)
    edges = np.append(last.panels.left, last.panels.right[-1])
    for sample, density in (
        (scores.other_scores, last.without),
        (scores.inserted_scores, last.canary),
    ):
        exact = np.append(0.0, np.cumsum(last.panels.masses(density)))
        empirical = np.searchsorted(np.sort(sample), edges) / sample.size
        # Kolmogorov's statistic exceeds 2.2 once in 10,000 samples.
        assert np.abs(empirical - exact).max() * np.sqrt(sample.size) < 2.2


def test_seeds_and_only_seeds_decide() -> None:
    first, again = simulate(SMALL, runs=1000, seed=1), simulate(SMALL, runs=1000, seed=1)
    np.testing.assert_array_equal(first.inserted_scores, again.inserted_scores)
    other = simulate(SMALL, runs=1000, seed=2)
    assert (first.inserted_scores != other.inserted_scores).all()
    # The scores with and without the canary have independent noise.
    assert abs(np.corrcoef(first.inserted_scores, first.other_scores)[0, 1]) < 0.15


def test_the_first_tile_does_not_depend_on_how_many_follow() -> None:
    few, many = simulate(SMALL, runs=2 * 65_536), simulate(SMALL, runs=2 * 65_536 + 10)
    np.testing.assert_array_equal(few.inserted_scores, many.inserted_scores[:65_536])


def test_a_valid_bound_stays_below_the_exact_epsilon_and_the_gdp_rule_does_not() -> None:
    process = landscape_process(batch=16, scaling="dpsgd")
    scores = simulate(process, runs=200_000)
    exact = exact_privacy(process).epsilon[-1]
    audited = [
        lower_bound(scores.inserted_scores, scores.other_scores, delta=1e-5, method=method).epsilon
        for method in ("clopper-pearson", "gaussian-dp")
    ]
    assert audited[0] <= exact
    assert audited[0] > 0.7 * exact
    assert audited[1] > 3.5 * exact  # 4.3 where the truth is 1.104


@pytest.mark.parametrize("runs", [1, 0, -4, 2.5])
def test_runs_are_checked(runs: float) -> None:
    with pytest.raises(InvalidInput, match="runs must be"):
        simulate(SMALL, runs=runs)  # type: ignore[arg-type]


def test_more_runs_than_memory_are_refused() -> None:
    with pytest.raises(InvalidInput, match="runs"):
        simulate(SMALL, runs=10**20)
