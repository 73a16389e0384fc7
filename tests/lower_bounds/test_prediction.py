"""Predictions agree with closed forms, with simulated scores, and with each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.claims import Claim
from dpaudit.curves import gaussian_delta, gaussian_epsilon, gaussian_mu
from dpaudit.lower_bounds import estimate, prediction
from dpaudit.lower_bounds.prediction import expected_bound, predicted_mu, scores_needed
from dpaudit.scores import Scores


@pytest.mark.parametrize(("period", "epsilon"), [(1, 23.995), (5, 8.596), (25, 3.341)])
def test_the_linear_prediction_of_the_paper_notes(period: int, epsilon: float) -> None:
    mu = predicted_mu(noise_multiplier=4.0, steps=250 * period, insertions=250)
    assert gaussian_epsilon(1e-5, mu) == pytest.approx(epsilon, abs=5e-4)


def test_sampling_agrees_with_simulated_sums() -> None:
    rate, steps, sigma = 0.3, 50, 1.5
    random = np.random.default_rng(0)
    noise = sigma * math.sqrt(steps) * random.normal(size=(2, 20_000))
    inserted = random.binomial(steps, rate, size=20_000) + noise[0]
    pooled = math.sqrt((inserted.var() + noise[1].var()) / 2)
    found = predicted_mu(noise_multiplier=sigma, steps=steps, insertions=steps, sampling_rate=rate)
    assert found == pytest.approx((inserted.mean() - noise[1].mean()) / pooled, rel=0.03)


def test_no_noise_means_infinitely_far_apart() -> None:
    assert predicted_mu(noise_multiplier=0.0, steps=10, insertions=10) == math.inf


@pytest.mark.parametrize("mu", [1.0, 3.953])
def test_expected_bounds_are_typical_of_random_scores(mu: float) -> None:
    """Between the quartiles of what 60 audits with normal scores find."""
    random = np.random.default_rng(1)
    found = [
        estimate(
            Scores.from_samples(random.normal(mu, 1, 1000), random.normal(0, 1, 1000)),
            delta=1e-5,
            method="gaussian-dp",
            seed=seed,
        ).epsilon
        for seed in range(60)
    ]
    low, high = np.quantile(found, [0.1, 0.9])
    assert low < expected_bound(mu, scores=2000, delta=1e-5).epsilon < high


def test_more_scores_are_needed_to_come_closer_and_they_suffice() -> None:
    mu = 1.768
    needed = [scores_needed(mu, share=share, delta=1e-5) for share in (0.5, 0.8, 0.9)]
    assert needed == sorted(needed, key=lambda count: count or 0)
    assert needed[2] is not None
    enough = expected_bound(mu, scores=needed[2], delta=1e-5).epsilon
    assert enough >= 0.9 * gaussian_epsilon(1e-5, mu)


def test_what_cannot_be_reached_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "MOST_SCORES", 2000)
    assert scores_needed(3.953, share=0.95, delta=1e-5) is None
    assert scores_needed(math.inf, share=0.9, delta=1e-5) is None


@pytest.mark.parametrize("method", ["gaussian-dp", "clopper-pearson"])
def test_many_scores_are_extrapolated(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = expected_bound(1.0, scores=40_000, delta=1e-5, method=method)
    monkeypatch.setattr(prediction, "MOST_SCORES", 10_000)
    found = expected_bound(1.0, scores=40_000, delta=1e-5, method=method)
    assert found.epsilon == pytest.approx(whole.epsilon, rel=0.03 if whole.mu else 0.3)
    assert found.epsilon < gaussian_epsilon(1e-5, 1.0)


@pytest.mark.parametrize("epsilon", [1e-3, 8.0, 1e3])
@pytest.mark.parametrize("delta", [1e-200, 1e-300, 5e-324])
def test_claims_at_the_smallest_deltas_have_a_mu(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert 0 < float(gaussian_delta(epsilon, mu)) <= delta
    assert Claim.from_epsilon(epsilon, delta).tradeoff(0.5) <= 0.5
