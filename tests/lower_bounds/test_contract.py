"""Every lower-bound method satisfies the contract, and the contract finds methods that do not."""

from __future__ import annotations

from typing import ClassVar, final

import pytest

from dpaudit.lower_bounds import METHODS, CountMethod, ErrorCounts
from dpaudit.lower_bounds.gaussian_dp import GaussianDP
from dpaudit.lower_bounds.levels import Levels
from dpaudit.lower_bounds.questions import Answer, Question
from dpaudit.testing import check_lower_bound


@pytest.mark.parametrize("name", METHODS)
def test_every_method_satisfies_the_contract(name: str) -> None:
    method = METHODS[name]()
    assert method.name == name
    check_lower_bound(method, audits=60)


class _Flawed(CountMethod):
    """Gaussian DP with epsilon multiplied and shifted."""

    name = "flawed"
    paper = ""
    needs_positive_delta = True
    factor: ClassVar[float] = 1.0
    shift: ClassVar[float] = 0.0

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels):  # type: ignore[no-untyped-def]
        return GaussianDP().merit(counts, question, levels)

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=self.factor * Answer.of_mu(merit, question).value + self.shift)


@final
class _TooLarge(_Flawed):
    factor = 1.5


@final
class _Negative(_Flawed):
    shift = -1.0


def test_the_contract_accepts_a_correct_method() -> None:
    check_lower_bound(_Flawed(), audits=40)  # type: ignore[abstract]


@pytest.mark.parametrize("flawed", [_TooLarge, _Negative])
def test_the_contract_refuses(flawed: type[_Flawed]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_lower_bound(flawed(), audits=40)
