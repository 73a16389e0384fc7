"""PRV: brackets that hold, and failures of the package told as errors."""

from __future__ import annotations

import sys

import pytest

from dpaudit.comparisons import prv
from dpaudit.comparisons.prv import PrvAccountant
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput, MissingExtra, NumericalError
from dpaudit.upper_bounds import NoisySteps, all_upper_bounds, upper_bound


@pytest.mark.parametrize(("sigma", "count"), [(8.0, 1), (1.0, 10), (0.05, 1), (4.0, 250)])
def test_bracket_holds_the_closed_form(sigma: float, count: int) -> None:
    steps = NoisySteps(noise_multiplier=sigma, steps=count)
    bound = PrvAccountant().epsilon(steps, delta=1e-5)
    exact = gaussian_epsilon(1e-5, steps.mu)
    assert bound.details["epsilon_lower"] <= exact <= bound.epsilon
    assert bound.numerical_error == pytest.approx(
        bound.epsilon - bound.details["epsilon_lower"], abs=1e-12
    )


def test_smaller_epsilon_error_narrows_the_bracket() -> None:
    steps = NoisySteps(noise_multiplier=2.0, steps=4)
    wide = PrvAccountant(epsilon_error=0.1).epsilon(steps, delta=1e-5)
    narrow = PrvAccountant(epsilon_error=0.001).epsilon(steps, delta=1e-5)
    assert (narrow.numerical_error or 0) < 0.1 * (wide.numerical_error or 0)
    assert narrow.epsilon < wide.epsilon


def test_says_which_direction_it_computes_under_sampling() -> None:
    steps = NoisySteps(noise_multiplier=1.0, steps=10, sampling_rate=0.01)
    bound = PrvAccountant(epsilon_error=0.1).epsilon(steps, delta=1e-5)
    assert any("removing" in assumption for assumption in bound.assumptions)


@pytest.mark.parametrize(
    ("steps", "delta", "message"),
    [
        # The package's quadrature of the mean fails: few steps, little noise.
        (NoisySteps(noise_multiplier=0.4, steps=1, sampling_rate=0.1), 1e-5, "mean.*use pld"),
        # Its grid would not fit into memory: large epsilon.
        (NoisySteps(noise_multiplier=0.01, steps=250), 1e-5, "grid points; use pld"),
        # Its Fourier transform cannot resolve such a delta.
        (NoisySteps(noise_multiplier=4.0, steps=250), 1e-13, "delta"),
    ],
)
def test_failures_are_reported(steps: NoisySteps, delta: float, message: str) -> None:
    with pytest.raises(NumericalError, match=message):
        PrvAccountant().epsilon(steps, delta=delta)


def test_a_failure_is_listed_with_its_reason_not_as_a_number() -> None:
    result = all_upper_bounds(noise_multiplier=0.4, steps=1, sampling_rate=0.1, delta=1e-5)
    assert [bound.method for bound in result.bounds] == ["pld", "rdp"]
    reasons = {entry.method: entry.reason for entry in result.unavailable}
    assert set(reasons) == {"gaussian", "prv"}
    assert "use pld" in reasons["prv"]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prv_accountant", None)
    prv._prepared.cache_clear()
    with pytest.raises(MissingExtra, match=r"dpaudit\[prv\]"):
        upper_bound(noise_multiplier=4.0, steps=250, delta=1e-5, accountant="prv")
    result = all_upper_bounds(noise_multiplier=4.0, steps=250, epsilon=1.0)
    assert [entry.method for entry in result.unavailable] == ["prv"]


def test_refuses_errors_out_of_range() -> None:
    with pytest.raises(InvalidInput, match="epsilon_error"):
        PrvAccountant(epsilon_error=0.0)
    with pytest.raises(InvalidInput, match="delta_error"):
        PrvAccountant(delta_error=1.0)
