"""The power of a claim test agrees with simulated audits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpaudit.claims import power
from dpaudit.claims.anytime import AnytimeTest
from dpaudit.claims.claim import Claim
from dpaudit.claims.policy import CONFIRMED, STRICT, unconfirmed
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.report.words import power_line
from dpaudit.scores import Scores


@pytest.mark.parametrize("scores", [90, 250])
def test_the_power_grows_with_the_factor_and_agrees_with_simulated_audits(scores: int) -> None:
    """Few expected errors, where a normal approximation of their number would fail."""
    mu, random = math.sqrt(250) / 4, np.random.default_rng(0)
    factors, size = (1, 1.2, 1.4, 2, 3, 10), (scores, scores)
    claim, fresh = Claim.from_mu(mu), power._test_of.__wrapped__
    test = power._test_of(claim, *size, 0.05)
    powers = [test.power(factor * mu) for factor in factors]
    # Decisions for other factors change nothing.
    assert powers == [fresh(claim, *size, 0.05).power(f * mu) for f in factors]
    assert min(np.diff(powers)) > -1e-3
    assert powers[0] <= 0.05
    assert powers[-1] > 0.99

    threshold = 0.7 * mu  # half of a separation that is 1.4 times the claimed one
    errors = random.binomial(scores, ndtr(-threshold), (200, 2))
    rejected = [fresh(claim, *size, 0.05).rejects(*pair) for pair in errors]
    assert powers[2] == pytest.approx(np.mean(rejected), abs=0.15)


@pytest.mark.parametrize("anytime", [False, True])
def test_noise_that_was_too_small_does_not_improve_the_stated_power(anytime: bool) -> None:
    """Too little noise is compared with the claim, not with the noise of this audit."""
    claim, random = Claim.from_mu(2.0), np.random.default_rng(0)
    others, noise = random.normal(size=100), random.normal(size=100)

    def evidence(scale: float) -> Scores | AnytimeTest:
        groups = scale * noise + 2.0, scale * others
        if not anytime:
            return Scores.from_samples(*groups)
        test = AnytimeTest(claim)
        test.add(*groups)
        return test.streams[0]

    as_claimed, half, none = (
        power.detection_power(evidence(scale), claim, policy=unconfirmed())
        for scale in (1.0, 0.5, 0.0)
    )
    assert half.mu > 1.5 * as_claimed.mu
    assert math.isinf(none.mu)
    assert half.found == none.found == pytest.approx(as_claimed.found, rel=0.1)
    assert half.missed == none.missed > 1


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim.from_mu(0.0), 0.0),
        (Claim.from_mu(3.0), 3.0),
        (Claim.from_epsilon(8.0, 1e-5), 1.6660),
        (Claim.from_points([(0.0, 0.0)]), 0.0),
        (Claim.from_points([(1.0, 0.2)]), 1.5766),
    ],
)
def test_the_separation_that_a_claim_allows_is_where_both_error_rates_are_equal(
    claim: Claim, expected: float
) -> None:
    allowed = power.allowed_separation(claim)
    rate = ndtr(-allowed / 2)
    assert float(claim.tradeoff(rate)) == pytest.approx(rate, rel=1e-4)
    assert allowed == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_a_claim_of_nothing_allows_any_separation() -> None:
    claim = Claim.from_dpsgd(noise_multiplier=0.01, steps=100, sampling_rate=0.9)
    assert power.allowed_separation(claim) == power.allowed_separation(Claim.from_mu(1e4)) > 50


@pytest.mark.parametrize("finite", [0, 50])
def test_infinite_scores_count_as_the_farthest_ones(finite: int) -> None:
    random = np.random.default_rng(0)
    inserted = np.append(random.normal(1, 1, finite), np.full(50, np.inf))
    others = np.append(random.normal(0, 1, finite), np.full(50, -np.inf))
    assert power.separation(inserted, others) > 2
    assert power.separation(others, inserted) == 0


def test_a_claim_of_hardly_any_noise_can_be_tested_as_scores_come() -> None:
    test = AnytimeTest(Claim.from_dpsgd(noise_multiplier=1e-300, steps=1), confidence=0.95)
    test.add(np.ones(50), np.zeros(50))
    assert not test.refuted


def test_scores_that_refute_a_claim_without_less_noise_are_described_as_such() -> None:
    """Normal scores have rarer errors than pure DP allows, at thresholds in their tails."""
    inserted = np.arange(20_000) % 2
    shifted = np.random.default_rng(0).standard_normal(20_000) + 1.1 * inserted
    found = power.detection_power(
        Scores(score=shifted, inserted=inserted), Claim.from_points([(1.0, 0.0)])
    )
    assert found.found == 1.0
    assert "times too small" not in power_line(found)


def test_a_factor_that_is_found_is_not_also_called_missed() -> None:
    """Many scores turn from one to the other within the printed digits."""
    found = power.Power(mu=1.8, detect=0.5, probability=0.0, found=2.4525, missed=2.4511)
    assert "found noise 2.45 times too small" in power_line(found)
    assert "missed" not in power_line(found)


def test_the_power_covers_both_stages() -> None:
    """Fresh runs are independent of the first ones, so the stages multiply."""
    claim = Claim.from_mu(2.0)
    staged = power.power_of(claim, 2.6, scores=200, policy=CONFIRMED)
    first, second = (
        power.power_of(claim, 2.6, scores=times * 200, policy=unconfirmed(level))
        for times, level in ((1, 0.05), (2, 0.02))
    )
    assert staged == pytest.approx(first * second)
    assert 0.5 < staged < first < 1
    several = power.power_of(claim, 2.6, scores=200, policy=CONFIRMED, tests=20)
    assert several < staged - 0.1


@pytest.mark.parametrize(("errors", "expected"), [(500, 0.0), (159, 2.0), (0, 6.19)])
def test_counts_show_how_far_apart_normal_scores_would_be(errors: int, expected: float) -> None:
    right = 1000 - errors
    counts = ErrorCounts.given(
        true_positives=right, false_negatives=errors, false_positives=errors, true_negatives=right
    )
    assert power.separation_of(counts) == pytest.approx(expected, abs=0.4)


@pytest.mark.parametrize(
    ("mu", "scores", "lost", "probability"),
    [
        (1.5, 50, (0.0, 0.0), 0.0651893054102099),
        (2.0, 100, (0.0, 0.0), 0.9459730631955628),
        (1.5, 400, (0.0, 0.0), 0.9527298221360471),
        (2.0, 100, (0.1, 0.0), 0.6432456172586866),
        (2.0, 100, (0.0, 0.2), 0.9889097645408031),
    ],
)
def test_the_same_audit_has_the_same_power(mu, scores, lost, probability) -> None:
    """Power is stated to four digits, and read again from stored audits."""
    (test,) = power._stages(Claim.from_mu(1.0), (scores, scores), STRICT, 1, 0.1)
    assert test.power(mu, lost) == pytest.approx(probability, rel=1e-6)
