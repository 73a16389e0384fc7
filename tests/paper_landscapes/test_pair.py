"""Pairs of known distributions: profile, epsilon, trade-off curve, GDP rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit.curves import gaussian_delta, gaussian_tradeoff
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes import (
    Constant,
    DiscretePair,
    LandscapeProcess,
    Threshold,
    densities,
)
from dpaudit_paper.landscapes.pair import normal_mass


def test_randomized_response_by_hand() -> None:
    # Truth with probability 3/4: epsilon is ln 3 at delta 0, and (3/4 - 1/4) at epsilon 0.
    pair = DiscretePair(np.array([0.75, 0.25]), np.array([0.25, 0.75]))
    assert pair.delta(0.0) == pytest.approx(0.5)
    assert pair.delta(math.log(3)) == pytest.approx(0.0, abs=1e-15)
    assert pair.epsilon(0.25) == pytest.approx(math.log(2))
    alpha, beta = pair.tradeoff()
    np.testing.assert_allclose(alpha, [0, 0.25, 1])
    np.testing.assert_allclose(beta, [1, 0.25, 0])


def test_the_larger_direction_counts() -> None:
    # With the canary there is an outcome that never occurs without it; not the other way round.
    pair = DiscretePair(np.array([1.0, 0.0]), np.array([0.9, 0.1]))
    assert pair.delta(5.0) == pytest.approx(0.1)
    assert pair.one_sided_epsilon(0.05, swapped=True) < math.log(1 / 0.9)
    assert pair.epsilon(0.05) == math.inf
    assert pair.epsilon(0.2) == 0
    assert pair.delta(1e4) == pytest.approx(0.1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=12),
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=12),
    st.floats(1e-9, 0.5),
)
def test_epsilon_is_the_inverse_of_delta(zero: list[float], one: list[float], delta: float) -> None:
    size = min(len(zero), len(one))
    p0, p1 = np.array(zero[:size]), np.array(one[:size])
    pair = DiscretePair(p0 / p0.sum(), p1 / p1.sum())
    epsilon = pair.epsilon(delta)
    assert pair.delta(epsilon) <= delta * (1 + 1e-6) + 1e-12
    if epsilon > 1e-6:
        assert pair.delta(epsilon * (1 - 1e-6)) >= delta * (1 - 1e-6) - 1e-12


def test_density_pair_has_the_gaussian_profile_and_curve() -> None:
    process = LandscapeProcess(
        noise_multiplier=1.5, batch_size=3, steps=4, landscape=Constant(), scaling="dpsgd"
    )
    *_, last = densities(process)
    mu = 1 / (1.5 * 2)
    for epsilon in (0.0, 0.3, 1.0, 1.7):
        assert last.delta(epsilon) == pytest.approx(float(gaussian_delta(epsilon, mu)), rel=1e-7)
    alpha, beta = last.tradeoff()
    inside = (alpha > 1e-9) & (alpha < 1 - 1e-9)
    np.testing.assert_allclose(beta[inside], gaussian_tradeoff(alpha[inside], mu), atol=1e-8)
    assert (np.diff(alpha) >= 0).all()
    assert (np.diff(beta) <= 0).all()


def test_no_test_beats_the_exact_curve_and_the_gdp_rule_reads_one_point_of_it() -> None:
    process = LandscapeProcess(noise_multiplier=1, batch_size=1, steps=25, landscape=Threshold())
    *_, last = densities(process)
    alpha, beta = last.error_rates()
    best_alpha, best_beta = last.tradeoff()
    assert (beta >= np.interp(alpha, best_alpha, best_beta) - 1e-9).all()
    # Far from that point the curve lies above the Gaussian one: the rule overstates the leak.
    mu = last.gdp_rule_mu()
    assert np.interp(1e-3, best_alpha, best_beta) > gaussian_tradeoff(1e-3, mu) + 0.01


def test_normal_mass_keeps_relative_accuracy_in_both_tails() -> None:
    low, high = np.array([9.0, -10.0]), np.array([10.0, -9.0])
    np.testing.assert_allclose(normal_mass(low, high), 1.1285122074235907e-19, rtol=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, float("nan")])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must be"):
        DiscretePair(np.ones(1), np.ones(1)).epsilon(delta)
