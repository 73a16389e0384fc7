"""One call for all accountants: what is chosen, what is refused, what a bound says."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.errors import DpauditError, InvalidInput, NumericalError
from dpaudit.testing.accountants import exact_delta
from dpaudit.upper_bounds import NoisySteps, PldAccountant, all_upper_bounds, upper_bound
from dpaudit.upper_bounds.steps import HiddenState

TRAINING: dict[str, Any] = {"noise_multiplier": 4.0, "steps": 250}


def test_the_sharpest_accountant_is_the_default() -> None:
    assert upper_bound(**TRAINING, delta=1e-5).method == "gaussian"
    assert upper_bound(**TRAINING, sampling_rate=1.0, delta=1e-5).method == "gaussian"
    assert upper_bound(**TRAINING, sampling_rate=0.1, delta=1e-5).method == "pld"


@pytest.mark.parametrize("accountant", ["gaussian", "pld", "prv", "rdp"])
def test_a_sampling_rate_of_1_is_no_sampling(accountant: str) -> None:
    settings = {"delta": 1e-4, "accountant": accountant}
    every_step = upper_bound(noise_multiplier=2.0, steps=4, **settings)
    rate_of_1 = upper_bound(noise_multiplier=2.0, steps=4, sampling_rate=1.0, **settings)
    assert rate_of_1.epsilon == every_step.epsilon
    assert rate_of_1.assumptions == every_step.assumptions


@pytest.mark.parametrize(
    ("sigma", "steps", "rate"),
    [
        (1.0, 10**12, 1e-9),  # dp-accounting would not end
        (0.01, 10**6, 0.5),  # losses beyond the largest number
        (0.05, 2, 1 - 1e-12),  # a logarithm of less than nothing
        (1e300, 1000, 0.5),
        (1e-300, 1000, 0.5),
    ],
)
def test_extreme_trainings_have_a_bound(sigma: float, steps: int, rate: float) -> None:
    sampled = {"noise_multiplier": sigma, "steps": steps, "sampling_rate": rate}
    bound = upper_bound(**sampled, delta=1e-5)
    always = upper_bound(noise_multiplier=sigma, steps=steps, delta=1e-5)
    assert 0 <= bound.epsilon <= always.epsilon
    for failed in all_upper_bounds(**sampled, delta=1e-5).unavailable:
        assert "use " in failed.reason


def test_pld_refuses_more_steps_than_it_resolves() -> None:
    with pytest.raises(NumericalError, match=r"at most 10,000,000 sampled steps, got 100,000,000"):
        upper_bound(
            noise_multiplier=1.0, steps=10**8, sampling_rate=1e-5, delta=1e-5, accountant="pld"
        )


def test_accountants_in_order_of_sharpness() -> None:
    exact, pld, rdp, prv = all_upper_bounds(**TRAINING, delta=1e-5).bounds
    assert exact.epsilon <= pld.epsilon <= prv.epsilon <= rdp.epsilon
    assert pld.epsilon - exact.epsilon <= 1e-4


def test_all_of_them_bound_delta_too() -> None:
    result = all_upper_bounds(noise_multiplier=1.0, steps=4, sampling_rate=0.2, epsilon=1.5)
    assert [bound.quantity for bound in result.bounds] == ["delta"] * 3
    assert [entry.method for entry in result.unavailable] == ["gaussian"]
    pld, rdp, prv = (bound.delta for bound in result.bounds)
    assert pld <= prv <= rdp


def test_an_accountant_of_ones_own_settings() -> None:
    described = {"noise_multiplier": 1.0, "steps": 4, "sampling_rate": 0.2, "delta": 1e-5}
    fine = upper_bound(**described)
    coarse = upper_bound(**described, accountant=PldAccountant(interval=0.01))
    assert coarse.details["interval"] > 10 * fine.details["interval"]
    assert fine.epsilon < coarse.epsilon < fine.epsilon + 1e-3


def test_a_bound_says_what_it_assumes() -> None:
    plain = upper_bound(**TRAINING, delta=1e-5)
    assert any("added or removed" in assumption for assumption in plain.assumptions)
    assert any("every step" in assumption for assumption in plain.assumptions)
    sampled = upper_bound(**TRAINING, sampling_rate=0.125, delta=1e-5)
    assert any(
        "Poisson" in assumption and "0.125" in assumption for assumption in sampled.assumptions
    )
    assert (sampled.side, sampled.confidence) == ("upper", None)


def test_bounds_are_plain_data_for_json() -> None:
    for bound in all_upper_bounds(**TRAINING, delta=1e-5).bounds:
        assert json.loads(json.dumps(bound.to_dict(), allow_nan=False))["steps"] == 250
    infinite = upper_bound(noise_multiplier=0, steps=1, delta=1e-5)
    assert math.isinf(infinite.epsilon)
    assert json.loads(json.dumps(infinite.to_dict(), allow_nan=False))["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "give either delta or epsilon"),
        ({"delta": 1e-5, "epsilon": 1.0}, "give either delta or epsilon"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\), got 1.0"),
        ({"delta": -1e-5}, "delta must be in"),
        ({"delta": math.nan}, "delta must be finite"),
        ({"epsilon": -1.0}, "epsilon must be at least 0, got -1.0"),
        ({"epsilon": math.inf}, "epsilon must be finite"),
        ({"delta": 1e-5, "noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"delta": 1e-5, "noise_multiplier": math.inf}, "noise_multiplier must be finite"),
        ({"delta": 1e-5, "steps": 0}, "steps must be at least 1, got 0"),
        ({"delta": 1e-5, "steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"delta": 1e-5, "sampling_rate": 0.0}, r"sampling_rate must be in \(0, 1\], got 0.0"),
        ({"delta": 1e-5, "sampling_rate": 1.1}, "sampling_rate must be in"),
        ({"delta": 1e-5, "accountant": "moments"}, "accountant must be one of gaussian, pld"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        upper_bound(**(TRAINING | wrong))
    if "accountant" not in wrong:
        with pytest.raises(DpauditError, match=message):
            all_upper_bounds(**(TRAINING | wrong))


@pytest.mark.parametrize(
    ("noise", "steps", "rate", "delta"),
    [(10.0, 1, 1e-5, 1e-6), (0.1, 10**6, 0.9, 1e-5), (1.0, 10**5, 1e-3, 1e-11)],
)
def test_the_default_is_the_least_valid_bound_at_the_edges(
    noise: float, steps: int, rate: float, delta: float
) -> None:
    asked = {"noise_multiplier": noise, "steps": steps, "delta": delta}
    bound = upper_bound(**asked, sampling_rate=rate)
    renyi = upper_bound(**asked, sampling_rate=rate, accountant="rdp")
    assert 0 <= bound.epsilon <= min(renyi.epsilon, upper_bound(**asked).epsilon)
    assert math.isfinite(bound.epsilon)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fails if a test needs more than 1.5 GB beside what this process had before, on Linux."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def kilobytes(name: str) -> int:
        return int(re.findall(rf"{name}:\s+(\d+)", status.read_text())[0])

    if not (status.exists() and os.access(reset, os.W_OK)):
        yield
        return
    reset.write_text("5")  # sets the peak to what is used now
    before = kilobytes("VmRSS")
    yield
    assert kilobytes("VmHWM") - before < 3 * 2**19


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_bounds_over_the_whole_range_of_settings(seed: int, little_memory: None) -> None:
    random = np.random.default_rng(seed)
    noise, rate = 10 ** random.uniform(-1, 2), 10 ** random.uniform(-5, 0)
    steps, delta = int(10 ** random.uniform(0, 6)), 10 ** random.uniform(-15, -1)
    if seed % 3 == 0:
        steps = 1
    described = NoisySteps(noise_multiplier=noise, steps=steps, sampling_rate=rate)
    bound = upper_bound(noise_multiplier=noise, steps=steps, sampling_rate=rate, delta=delta)
    assert math.isfinite(bound.epsilon)
    unsampled = upper_bound(noise_multiplier=noise, steps=steps, delta=delta)
    assert bound.epsilon <= unsampled.epsilon
    # All steps together are no more private than the first of them.
    one = replace(described, steps=1)
    assert exact_delta(one, bound.epsilon) <= delta * (1 + 1e-9)
    back = upper_bound(
        noise_multiplier=noise, steps=steps, sampling_rate=rate, epsilon=bound.epsilon
    )
    assert back.delta <= max(delta * 1.01, 1e-9)


def test_standard_accountants_count_the_insertions_of_a_training_with_a_hidden_state():
    bounds = all_upper_bounds(
        noise_multiplier=4.0,
        steps=1250,
        delta=1e-5,
        hidden_state=HiddenState(period=5, step_lipschitz=1.0),
    )
    # 250 insertions at noise multiplier 4; the numbers are those of 250 steps without hiding.
    assert bounds["pld"].epsilon == pytest.approx(23.9954, abs=1e-3)
    assert bounds["rdp"].epsilon == pytest.approx(25.518, abs=1e-3)
    steps = NoisySteps(noise_multiplier=4.0, steps=1250, hidden_state=HiddenState(period=5))
    assert steps.mu == pytest.approx(3.952847, abs=1e-6)
