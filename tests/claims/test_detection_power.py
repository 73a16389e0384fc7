"""The power of a claim test agrees with simulated audits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpaudit.claims import power
from dpaudit.claims.claim import Claim


@pytest.mark.parametrize("scores", [90, 250])
def test_the_power_grows_with_the_factor_and_agrees_with_simulated_audits(scores: int) -> None:
    """Few expected errors, where a normal approximation of their number would fail."""
    mu, random = math.sqrt(250) / 4, np.random.default_rng(0)
    curve, factors = power._interpolated(Claim.from_mu(mu)), (1, 1.2, 1.4, 2, 3, 10)
    test = power._Test(curve, scores, scores, 0.05)
    powers = [test.power(factor * mu) for factor in factors]
    # Decisions for other factors change nothing.
    assert powers == [power._Test(curve, scores, scores, 0.05).power(f * mu) for f in factors]
    assert min(np.diff(powers)) > -1e-3
    assert powers[0] <= 0.05
    assert powers[-1] > 0.99

    threshold = 0.7 * mu  # half of a separation that is 1.4 times the claimed one
    errors = random.binomial(scores, ndtr(-threshold), (200, 2))
    rejected = [power._Test(curve, scores, scores, 0.05)._rejects(*pair) for pair in errors]
    assert powers[2] == pytest.approx(np.mean(rejected), abs=0.15)
