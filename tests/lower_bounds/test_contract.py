"""Every lower-bound method satisfies the contract, and the contract finds methods that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import changeable

from dpaudit.curves import GAUSSIAN, Family
from dpaudit.lower_bounds import METHODS, Method, Reading, Request
from dpaudit.privacy import Question
from dpaudit.testing import check_lower_bound


@pytest.mark.parametrize("name", METHODS)
def test_every_method_satisfies_the_contract(name: str) -> None:
    assert METHODS[name].name == name
    check_lower_bound(METHODS[name], audits=60)


def _flawed(factor: float, shift: float) -> Method:
    """gaussian-dp with an answer that is multiplied and shifted."""

    def answer(mu: float, question: Question) -> float:
        return factor * GAUSSIAN.answer(mu, question) + shift

    family = replace(GAUSSIAN, answer=answer)
    return replace(METHODS["gaussian-dp"], name="flawed", family=family)


def test_the_contract_accepts_a_correct_method() -> None:
    check_lower_bound(_flawed(1.0, 0.0), audits=40)


@pytest.mark.parametrize(("factor", "shift"), [(1.5, 0.0), (1.0, -1.0)])
def test_the_contract_refuses_wrong_numbers(factor: float, shift: float) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_lower_bound(_flawed(factor, shift), audits=40)


def test_the_contract_refuses_a_bound_that_says_nothing_about_its_confidence() -> None:
    def test(scores, family: Family, request: Request) -> Reading:  # type: ignore[no-untyped-def]
        reading = METHODS["clopper-pearson"].test(scores, family, request)
        return replace(reading, parameter=reading.parameter * request.confidence)

    with pytest.raises(AssertionError):
        check_lower_bound(Method(name="grows", test=test, reads_counts=True), audits=20)


def test_values_cannot_be_changed_after_they_were_checked() -> None:
    assert changeable("dpaudit.lower_bounds") == []
