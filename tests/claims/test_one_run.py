"""The test of a claim from one run, where canaries may depend on each other."""

import math

import numpy as np
import pytest

from dpaudit import Claim, Scores
from dpaudit.claims import judge
from dpaudit.claims.fixed_sample import dependent_p_value, one_run_claim_p_value
from dpaudit.lower_bounds.guesses import Guesses
from dpaudit.lower_bounds.one_run import one_run_p_value


def common_coin_audit(epsilon: float, share: float, canaries: int, seed: int) -> Scores:
    """All canaries get randomised response together with probability ``share``; else pure noise."""
    random = np.random.default_rng(seed)
    coins = random.random(canaries) < 0.5
    while abs(coins.mean() - 0.5) > 0.12 or coins.mean() == 0.5:  # what the fairness test refuses
        coins = random.random(canaries) < 0.5
    right = random.random(canaries) < 1 / (1 + math.exp(-epsilon))
    shown = np.where(right, coins, ~coins) if random.random() < share else random.random(canaries)
    run = np.zeros(canaries, dtype=int)
    return Scores(score=shown + 1e-3 * random.random(canaries), inserted=coins, run=run)


def profile(epsilon: float, share: float) -> Claim:
    """The exact profile of one canary of `common_coin_audit`."""
    grid = np.linspace(0, epsilon, 40)
    deltas = share * (np.exp(epsilon) - np.exp(grid)) / (1 + np.exp(epsilon))
    return Claim.from_points(zip(grid, np.maximum(deltas, 0.0), strict=True))


def test_false_alarms_where_all_canaries_depend_on_one_coin():
    # A test that assumed independence would see the dependence as a leak.
    claim, alarms = profile(3.0, 0.5), 0
    for seed in range(60):
        alarms += dependent_p_value(common_coin_audit(3.0, 0.5, 150, seed), claim) <= 0.05
    assert alarms / 60 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


def test_a_broken_claim_is_refuted_from_one_run():
    random = np.random.default_rng(0)
    coins = random.random(600) < 0.5
    run = np.zeros(600, dtype=int)
    scores = Scores(score=random.normal(size=600) + 4 * coins, inserted=coins, run=run)
    assert judge(scores, Claim.from_points([(1.0, 1e-5)])).verdict == "violation"
    assert judge(scores, Claim.from_mu(4.0)).verdict != "violation"


@pytest.mark.parametrize("correct", [60, 80, 95])
def test_the_p_value_is_near_that_of_the_binomial_for_pure_dp(correct):
    claim = Claim.from_points([(1.0, 0.0)])
    ours = one_run_claim_p_value(Guesses(correct, 100, 100), claim)
    exact = one_run_p_value(Guesses(correct, 100, 100), epsilon=1.0, delta=0.0)
    assert exact * 0.999 <= ours <= max(2.5 * exact, 1e-12) or ours == 1.0
