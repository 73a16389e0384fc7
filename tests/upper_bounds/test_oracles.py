"""Numbers printed by others, at the digits they print: shared/design/oracles.md, "From above"."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit.comparisons.prv import PrvAccountant
from dpaudit.curves import gaussian_tradeoff
from dpaudit.upper_bounds import (
    NoisySteps,
    noise_multiplier_for,
    renyi_divergences,
    upper_bound,
)


def test_250_steps_at_noise_4() -> None:
    def epsilon(accountant: str) -> float:
        return upper_bound(
            noise_multiplier=4.0, steps=250, delta=1e-5, accountant=accountant
        ).epsilon

    assert epsilon("gaussian") == pytest.approx(23.995359, abs=1e-6)
    assert epsilon("pld") == pytest.approx(23.995359, abs=1e-6)
    assert epsilon("rdp") == pytest.approx(25.51842, abs=1e-5)
    prv = upper_bound(noise_multiplier=4.0, steps=250, delta=1e-5, accountant="prv")
    bracket = (prv.details["epsilon_lower"], prv.details["epsilon_estimate"], prv.epsilon)
    assert bracket == pytest.approx((23.98535, 23.99536, 24.00537), abs=1e-5)
    assert upper_bound(noise_multiplier=4.0, steps=250, delta=1e-5).mu == pytest.approx(
        3.952847, abs=1e-6
    )


@pytest.mark.parametrize(
    ("sigma", "epsilon"), [(1, 4.377178), (2, 1.993091), (4, 0.926342), (8, 0.434416)]
)
def test_one_step(sigma: float, epsilon: float) -> None:
    bound = upper_bound(noise_multiplier=sigma, steps=1, delta=1e-5)
    assert bound.epsilon == pytest.approx(epsilon, abs=1e-6)
    assert noise_multiplier_for(epsilon=epsilon, delta=1e-5, steps=1) == pytest.approx(
        sigma, rel=1e-5
    )


def test_three_steps_are_one() -> None:
    bound = upper_bound(noise_multiplier=3**0.5, steps=3, epsilon=1.0)
    assert bound.delta == pytest.approx(0.126936, abs=1e-6)
    assert bound.mu == pytest.approx(1.0)
    assert 1 - gaussian_tradeoff(0.1, 1.0) == pytest.approx(0.38914, abs=5e-6)


def test_poisson_delta() -> None:
    bound = upper_bound(noise_multiplier=0.5, steps=3, sampling_rate=0.2, epsilon=1.0)
    assert bound.method == "pld"
    assert bound.delta == pytest.approx(0.15594, rel=1e-4)


def test_poisson_renyi_divergences() -> None:
    steps = NoisySteps(noise_multiplier=2.5, steps=50, sampling_rate=0.01)
    printed = [6.70579741e-4, 1.08548710e-3, 2.18075656e-3, 2.38460375e-2, 167.416308]
    np.testing.assert_allclose(renyi_divergences(steps, [1.5, 2.5, 5, 50, 100]), printed, rtol=1e-8)


def test_poisson_epsilon() -> None:
    def epsilon(steps: int, accountant: str | PrvAccountant) -> float:
        return upper_bound(
            noise_multiplier=1.5,
            steps=steps,
            sampling_rate=0.04,
            delta=1e-5,
            accountant=accountant,
        ).epsilon

    assert epsilon(2250, "pld") == pytest.approx(6.768787, abs=1e-6)
    # dp-accounting 0.6 bounds fractional orders from above, where Opacus subtracts: 7.32933.
    assert epsilon(2250, "rdp") == pytest.approx(7.32911117143, rel=1e-4)
    assert epsilon(2249, PrvAccountant(delta_error=1e-8)) == pytest.approx(
        6.777395712150674, rel=1e-9
    )
    assert epsilon(2249, "prv") == pytest.approx(6.777395712150674, rel=1e-4)
