"""The bets of a live audit: fair against every step that keeps the claim, and growing otherwise."""

import numpy as np
import pytest
from scipy.special import ndtr

from dpaudit.live.betting import SUSPICIONS, evidence_of, step_bets

CLAIMS = [(1.0, 0.5), (1.0, 4.0), (0.25, 1.0), (1 / 16, 0.9), (0.01, 0.6), (0.001, 1.0)]


def expected_payoffs(rate, noise, *, played_rate, played_noise):
    """The exact expectation of what each bet on one pair pays, for a step with other settings."""
    bets = step_bets(rate, noise)
    v = bets.thresholds
    alpha = ndtr(-v / played_noise)
    beta = (1 - played_rate) * ndtr(v / played_noise) + played_rate * ndtr((v - 1) / played_noise)
    pay = np.exp(bets.payoffs)
    without = (1 - alpha) * pay[:, 0] + alpha * pay[:, 1]
    inserted = (1 - beta) * pay[:, 2] + beta * pay[:, 3]
    return without * inserted


@pytest.mark.parametrize(("rate", "noise"), CLAIMS)
def test_no_bet_gains_against_a_step_that_keeps_the_claim(rate, noise):
    for fewer in (1.0, 0.7, 0.1):
        for louder in (1.0, 1.01, 1.5, 10.0):
            expected = expected_payoffs(
                rate, noise, played_rate=fewer * rate, played_noise=louder * noise
            )
            assert (expected <= 1 + 1e-12).all()


@pytest.mark.parametrize(("rate", "noise"), CLAIMS[:5])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.8])
def test_the_bet_on_too_little_noise_gains_from_it(rate, noise, fraction):
    expected = expected_payoffs(
        rate, noise, played_rate=rate, played_noise=max(fraction, 1e-3) * noise
    )
    assert expected[SUSPICIONS.index(fraction)] > 1


def test_a_step_that_samples_more_often_than_claimed_gains():
    expected = expected_payoffs(0.1, 1.0, played_rate=0.2, played_noise=1.0)
    assert expected.max() > 1


def test_growth_counts_equally_many_of_both_kinds():
    bets = step_bets(0.5, 1.0)
    random = np.random.default_rng(0)
    without, inserted = random.normal(size=70), random.normal(size=50)
    assert np.array_equal(
        bets.log_growth(without, inserted), bets.log_growth(without[:50], inserted)
    )


def test_the_e_value_is_the_mean_wealth():
    assert evidence_of(np.log([1.0, 2.0, 3.0, 0.5, 0.5, 5.0])) == pytest.approx(2.0)
    assert evidence_of(np.array([-2000.0, -3000.0])) == 0.0
