"""Every accountant satisfies the contract, and the contract finds accountants that do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
from helpers import changeable

from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import NumericalError
from dpaudit.privacy import Bound
from dpaudit.testing import accountants as contract
from dpaudit.testing import check_accountant
from dpaudit.upper_bounds import ACCOUNTANTS, Accountant, NoisySteps, PldAccountant

CHECKS: list[Callable[[Accountant, NoisySteps], None]] = [
    contract.check_range,
    contract.check_monotone,
    contract.check_round_trip,
    contract.check_truth,
]


def accountant_of(name: str) -> Accountant:
    """An accountant by name; pld with a coarser grid, since the contract holds at any accuracy."""
    return PldAccountant(interval=1e-3) if name == "pld" else ACCOUNTANTS[name]()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_every_accountant_satisfies_the_contract(
    name: str, check: Callable[[Accountant, NoisySteps], None]
) -> None:
    accountant = accountant_of(name)
    for steps in contract.cases_of(accountant):
        check(accountant, steps)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_without_noise_or_delta_epsilon_is_infinite(name: str) -> None:
    contract.check_without_guarantee(accountant_of(name))


@dataclass(frozen=True, kw_only=True)
class _Flawed(Accountant):
    """The closed form, with a flaw: a share of epsilon kept, delta kept, or error claimed."""

    name: ClassVar[str] = "flawed"
    epsilon_share: float = 1.0
    delta_share: float = 1.0
    claimed_error: float | None = None

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        value = self.epsilon_share * gaussian_epsilon(delta, steps.mu)
        return self._bound(steps, "epsilon", value, delta)

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        value = self.delta_share * float(gaussian_delta(epsilon, steps.mu))
        return self._bound(steps, "delta", value, epsilon, numerical_error=self.claimed_error)


def test_the_contract_accepts_the_exact_accountant() -> None:
    check_accountant(_Flawed(), sampling=False)


@pytest.mark.parametrize(
    "flawed",
    [
        _Flawed(epsilon_share=0.99),
        _Flawed(delta_share=0.99),
        _Flawed(delta_share=1.001, claimed_error=1e-6),
        _Flawed(epsilon_share=-1.0),
    ],
    ids=["epsilon too small", "delta too small", "error understated", "wrong way"],
)
def test_the_contract_refuses(flawed: Accountant) -> None:
    with pytest.raises(AssertionError, match="breaks the contract"):
        check_accountant(flawed, sampling=False)


def test_the_contract_refuses_to_ignore_sampling_the_wrong_way() -> None:
    # Noise over the rate is not the mechanism with that rate: its delta is too small.
    @dataclass(frozen=True, kw_only=True)
    class Rescaled(Accountant):
        name: ClassVar[str] = "rescaled"

        def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
            mu = steps.mu * (steps.sampling_rate or 1)
            return self._bound(steps, "epsilon", gaussian_epsilon(delta, mu), delta)

        def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
            mu = steps.mu * (steps.sampling_rate or 1)
            return self._bound(steps, "delta", float(gaussian_delta(epsilon, mu)), epsilon)

    check_accountant(Rescaled(), sampling=False)
    with pytest.raises(AssertionError, match="sampling_rate"):
        check_accountant(Rescaled())


def test_an_answer_that_is_no_number_is_an_error() -> None:
    with pytest.raises(NumericalError, match="flawed"):
        _Flawed(epsilon_share=float("nan")).epsilon(contract.WITHOUT_SAMPLING[0], delta=1e-5)


def test_a_profile_below_the_smallest_number_is_not_minus_zero() -> None:
    assert math.copysign(1.0, float(gaussian_delta(1.0, 1e-9))) == 1.0


def test_values_cannot_be_changed_after_they_were_checked() -> None:
    assert changeable("dpaudit.upper_bounds") == []
