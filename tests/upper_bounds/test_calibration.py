"""The smallest noise for an epsilon: it satisfies the epsilon, and a little less does not."""

from __future__ import annotations

from typing import Any

import pytest

from dpaudit.errors import InvalidInput, NumericalError
from dpaudit.upper_bounds import PldAccountant, noise_multiplier_for, upper_bound


@pytest.mark.parametrize(
    "described",
    [
        {"epsilon": 0.1, "delta": 1e-9, "steps": 10_000},
        {"epsilon": 8.0, "delta": 1e-5, "steps": 1},
        {"epsilon": 600.0, "delta": 1e-5, "steps": 250},
        {"epsilon": 2.0, "delta": 1e-5, "steps": 100, "accountant": "rdp"},
        {"epsilon": 2.0, "delta": 1e-5, "steps": 5, "accountant": "prv"},
        {
            "epsilon": 2.0,
            "delta": 1e-5,
            "steps": 1000,
            "sampling_rate": 0.02,
            "accountant": PldAccountant(interval=1e-3),
        },
    ],
    ids=lambda described: f"{described.get('accountant', 'closed form')} {described['epsilon']}",
)
def test_the_smallest_noise_for_the_epsilon(described: dict[str, Any]) -> None:
    sigma = noise_multiplier_for(**described)
    rest = {name: value for name, value in described.items() if name != "epsilon"}
    assert upper_bound(noise_multiplier=sigma, **rest).epsilon <= described["epsilon"]
    less = upper_bound(noise_multiplier=sigma * (1 - 1e-4), **rest)
    assert less.epsilon > described["epsilon"]


def test_sampling_takes_less_noise() -> None:
    described = {"epsilon": 3.0, "delta": 1e-5, "steps": 200}
    coarse = PldAccountant(interval=1e-3)
    always = noise_multiplier_for(**described)
    rarely = noise_multiplier_for(**described, sampling_rate=0.05, accountant=coarse)
    assert rarely < 0.5 * always


def test_an_epsilon_below_the_accountants_error_is_out_of_reach() -> None:
    with pytest.raises(NumericalError, match="no noise multiplier reaches"):
        noise_multiplier_for(epsilon=0.005, delta=1e-5, steps=1, accountant="prv")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"delta": 0.0}, r"delta must be in \(0, 1\)"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"sampling_rate": 2.0}, "sampling_rate must be in"),
        ({"accountant": "all"}, "accountant must be one of"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        noise_multiplier_for(**({"epsilon": 1.0, "delta": 1e-5, "steps": 10} | wrong))


@pytest.mark.parametrize("epsilon", [1e300, 1e7])
def test_an_epsilon_beyond_all_formulas_is_refused(epsilon):
    with pytest.raises(InvalidInput, match="epsilon must be at most"):
        noise_multiplier_for(epsilon=epsilon, delta=1e-5, steps=100)


@pytest.mark.parametrize("epsilon", [1e-9, 1e6])
def test_extreme_epsilons_have_a_noise(epsilon):
    sigma = noise_multiplier_for(epsilon=epsilon, delta=1e-5, steps=100)
    assert 0 < sigma < float("inf")


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_more_steps_than_pld_composes_have_a_noise(epsilon: float) -> None:
    described = {"delta": 1e-5, "steps": 10**12, "sampling_rate": 1e-9}
    sigma = noise_multiplier_for(epsilon=epsilon, **described)
    assert upper_bound(noise_multiplier=sigma, **described).epsilon <= epsilon
