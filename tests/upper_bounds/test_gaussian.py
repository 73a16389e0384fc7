"""The closed form against 80 digits (mpmath, bisection to the last digit)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds import GaussianAccountant, NoisySteps

EPSILONS = [
    (100.0, 1, 1e-9, 0.04886639301570327242),
    (8.0, 1, 1e-5, 0.43441638009049684193),
    (1.0, 1, 1e-15, 8.1655796955042536319),
    (4.0, 250, 1e-5, 23.995358986997166102),
    (4.0, 250, 1e-100, 91.558875315049272403),
    (0.25, 1, 0.9, 1.7112723581791870405),
    (0.1, 1, 1e-5, 91.817289624663736591),
    (0.5, 100, 1e-5, 284.39184949774247766),
    (0.5, 100, 0.999, 137.11036385001932516),
    (0.05, 4, 1e-12, 1080.4583031276204234),
    (1.0, 10000, 1e-5, 5425.5098461474295628),
    (113.3, 1, 7.8e-263, 0.3034316304373069526252),
]
DELTAS = [
    (100.0, 1, 0.001, 0.0035110920258420982467),
    (8.0, 1, 0.5, 1.1448002283869239872e-6),
    (1.0, 1, 0.0, 0.38292492254802620728),
    (1.0, 1, 8.0, 3.6508216874217908585e-15),
    (4.0, 250, 24.0, 9.948139992562052216e-6),
    (4.0, 250, 60.0, 9.7017712035866674035e-41),
    (0.1, 1, 90.0, 0.000022159983824589567119),
    (0.5, 100, 284.0, 0.000010914222912129416718),
    (0.05, 4, 900.0, 0.0057974626830113864635),
    (1.0, 10000, 5000.0, 0.49601097601864319002),
    (1 / 32, 1, 516.4, 0.4330328559448378699087),
    (1 / 256, 1, 32811.1, 0.4316148779605251177951),
    (1 / 4096, 1, 8389951.6, 0.3713532050905707311215),
]


@pytest.mark.parametrize(("sigma", "count", "delta", "exact"), EPSILONS)
def test_epsilon_to_its_stated_error(sigma: float, count: int, delta: float, exact: float) -> None:
    steps = NoisySteps(noise_multiplier=sigma, steps=count)
    bound = GaussianAccountant().epsilon(steps, delta=delta)
    assert bound.numerical_error is not None
    assert abs(bound.epsilon - exact) <= bound.numerical_error
    assert bound.numerical_error <= 1e-8 * max(1, exact)


@pytest.mark.parametrize(("sigma", "count", "epsilon", "exact"), DELTAS)
def test_delta_to_its_stated_error(sigma: float, count: int, epsilon: float, exact: float) -> None:
    steps = NoisySteps(noise_multiplier=sigma, steps=count)
    bound = GaussianAccountant().delta(steps, epsilon=epsilon)
    assert bound.numerical_error is not None
    assert abs(bound.delta - exact) <= bound.numerical_error
    assert bound.delta == pytest.approx(exact, rel=1e-9)


def test_refuses_sampling_by_name_and_value() -> None:
    steps = NoisySteps(noise_multiplier=1.0, steps=2, sampling_rate=0.25)
    with pytest.raises(InvalidInput, match=r"sampling_rate=0\.25; use pld"):
        GaussianAccountant().epsilon(steps, delta=1e-5)


def test_a_tenth_of_the_stated_errors_would_be_too_small() -> None:
    shares = {"epsilon": 0.0, "delta": 0.0}
    for quantity, other, cases in (("epsilon", "delta", EPSILONS), ("delta", "epsilon", DELTAS)):
        for sigma, count, number, exact in cases:
            steps = NoisySteps(noise_multiplier=sigma, steps=count)
            bound = GaussianAccountant().bound(steps, **{other: number})
            error = abs(bound.value - exact) / (bound.numerical_error or 0.0)
            shares[quantity] = max(shares[quantity], error)
    assert all(0.1 < share <= 1 for share in shares.values()), shares


@given(
    sigma=st.floats(1e-3, 1e4),
    count=st.integers(1, 10**6),
    delta=st.floats(1e-300, 0.999),
    other=st.floats(1e-300, 0.999),
)
def test_epsilon_is_a_number_and_falls_with_delta_at_any_scale(
    sigma: float, count: int, delta: float, other: float
) -> None:
    steps = NoisySteps(noise_multiplier=sigma, steps=count)
    small, large = sorted((delta, other))
    more = GaussianAccountant().epsilon(steps, delta=small).epsilon
    less = GaussianAccountant().epsilon(steps, delta=large).epsilon
    assert math.isfinite(more)
    assert 0 <= less <= more * (1 + 1e-9) + 1e-9
