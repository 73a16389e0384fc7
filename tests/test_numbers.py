"""Printed numbers: never 100 % or 0 where that is not the number."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpaudit
from dpaudit._numbers import decimals, percent
from dpaudit.claims.anytime import AnytimeTest
from dpaudit.privacy import Bound


@pytest.mark.parametrize("tail", [10.0**-k for k in range(1, 17)])
def test_a_confidence_below_1_is_never_printed_as_all(tail: float) -> None:
    confidence = 1 - tail
    assert float(percent(confidence)) < 100
    assert float(percent(confidence)) == pytest.approx(100 * confidence, abs=51 * tail)
    bound = Bound(epsilon=1.0, delta=1e-5, side="lower", method="profile", confidence=confidence)
    assert "100%" not in repr(bound)


def test_numbers_as_before_where_they_say_enough() -> None:
    assert [percent(share) for share in (0.0, 0.5, 0.95, 0.999, 1.0)] == [
        "0",
        "50",
        "95",
        "99.9",
        "100",
    ]
    assert [decimals(value, 2) for value in (0.0, 0.005, 1.0, 23.9954)] == [
        "0.00",
        "0.01",
        "1.00",
        "24.00",
    ]
    assert decimals(math.inf, 2) == "inf"


@pytest.mark.parametrize("epsilon", [4e-5, 1e-9, 5e-324])
def test_an_epsilon_above_0_is_never_printed_as_0(epsilon: float) -> None:
    bound = Bound(epsilon=epsilon, delta=1e-5, side="upper", method="pld")
    assert f"epsilon <= {epsilon:.2g} at" in repr(bound)


def test_commands_print_a_confidence_near_1(run, tmp_path) -> None:
    scores = dpaudit.Scores.from_samples(np.arange(100) + 60.0, np.arange(100))
    path = tmp_path / "scores.csv"
    dpaudit.write_scores(scores, path)
    _, printed, _ = run("estimate", str(path), "--delta", "1e-5", "--confidence", str(1 - 1e-12))
    assert "99.9999999999 %" in printed
    assert "100 %" not in printed


def test_an_anytime_p_value_is_never_0() -> None:
    test = AnytimeTest(dpaudit.Claim.from_mu(0.01))
    for _ in range(10):
        test.add(np.ones(500), np.zeros(500))
    assert 0 < test.p_value < 1e-300
