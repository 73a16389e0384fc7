"""The yardstick itself: the families' profiles are those of their own error rates and samplers."""

from __future__ import annotations

import numpy as np
import pytest
from families import (
    Gaussian,
    Laplace,
    RandomisedResponse,
    ScoreFamily,
    SubsampledGaussian,
    TwoPointMixture,
    draw_sampled_steps,
)

from dpaudit.curves import approximate_tradeoff
from dpaudit.upper_bounds import privacy_profile

FAMILIES = [
    Gaussian(0.0),
    Gaussian(1.0),
    Gaussian(3.95),
    SubsampledGaussian(0.1, 2.0),
    SubsampledGaussian(0.9, 1.0),
    Laplace(1.0),
    RandomisedResponse(2.0),
    RandomisedResponse(1.0, 0.05),
    TwoPointMixture(2.0),
]
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@by_name
def test_the_profile_is_what_the_best_threshold_attains(family: ScoreFamily) -> None:
    cuts = np.linspace(-8, 12, 40_001)
    alpha, power = family.above(cuts, False), family.above(cuts, True)
    for epsilon in (0.0, 0.3, 0.9, 2.5):
        growth = np.exp(epsilon)
        attained = max((power - growth * alpha).max(), (1 - alpha - growth * (1 - power)).max())
        assert family.delta(epsilon) == pytest.approx(max(attained, 0.0), abs=2e-7)


@by_name
def test_the_sampler_has_the_stated_error_rates(family: ScoreFamily) -> None:
    inserted, others = family.audit(200_000, np.random.default_rng(1))
    for cut in (-0.5, 0.4, 0.9, 1.6, 2.4):
        for scores, label in ((inserted, True), (others, False)):
            rate = float(family.above(cut, label))
            spread = np.sqrt(rate * (1 - rate) / len(scores))
            assert abs(float((scores > cut).mean()) - rate) <= 4.5 * spread


@by_name
def test_epsilon_and_delta_are_inverse(family: ScoreFamily) -> None:
    for delta in (1e-5, 1e-2):
        epsilon = family.epsilon(delta)
        if 0 < epsilon < np.inf:
            assert family.delta(epsilon) == pytest.approx(delta, rel=1e-6)


def test_pure_families_are_exactly_as_private_as_their_name_says() -> None:
    for family in (Laplace(1.5), RandomisedResponse(1.5), TwoPointMixture(1.5)):
        assert family.epsilon(0.0) == pytest.approx(1.5, abs=1e-12)
    assert RandomisedResponse(1.5, 0.02).epsilon(0.02) == pytest.approx(1.5, abs=1e-12)


def test_randomised_response_lies_on_the_curve_of_its_claim() -> None:
    family = RandomisedResponse(1.0, 0.05)
    cuts = np.array([0.5, 1.5, 2.5])
    alpha, beta = family.above(cuts, False), 1 - family.above(cuts, True)
    np.testing.assert_allclose(beta, approximate_tradeoff(alpha, 1.0, 0.05), atol=1e-12)


def test_one_sampled_step_agrees_with_the_privacy_loss_distribution() -> None:
    family = SubsampledGaussian(0.1, 2.0)
    epsilons = np.array([0.1, 0.5, 1.0, 3.0])
    upper = privacy_profile(noise_multiplier=0.5, steps=1, sampling_rate=0.1, epsilons=epsilons)
    np.testing.assert_allclose(upper, family.delta(epsilons), rtol=1e-4)


def test_the_composed_sampler_attains_the_curve_of_the_accountant() -> None:
    settings = {"noise_multiplier": 1.0, "steps": 20, "sampling_rate": 0.1}
    coins = np.repeat([True, False], 200_000)
    scores = draw_sampled_steps(coins, np.random.default_rng(2), **settings)
    epsilon = 0.5
    # The score is the log likelihood ratio, so the best set for epsilon is where it is above it.
    seen = (scores[coins] > epsilon).mean() - np.exp(epsilon) * (scores[~coins] > epsilon).mean()
    claimed = float(privacy_profile(epsilons=epsilon, **settings))
    assert seen == pytest.approx(claimed, abs=4 * np.sqrt(np.e / 200_000))
