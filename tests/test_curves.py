"""Curves and families: what the joint test, the bands and the guesses read of a claim."""

import itertools

import numpy as np
import pytest

from dpaudit.curves import (
    GAUSSIAN,
    Curve,
    Family,
    gaussian_curve,
    gaussian_delta,
    pairs_family,
)
from dpaudit.privacy import Question

FAMILIES: list[tuple[Family, tuple[float, ...]]] = [
    (pairs_family(Question(delta=0.0)), (0.5, 2.0, 6.0)),
    (pairs_family(Question(delta=0.02)), (0.5, 2.0, 3.5)),
    (pairs_family(Question(epsilon=0.0)), (0.1, 0.5, 0.9)),
    (pairs_family(Question(epsilon=1.0)), (0.1, 0.5, 0.9)),
    (GAUSSIAN, (0.5, 1.0, 4.0)),
]
each = pytest.mark.parametrize(("family", "parameters"), FAMILIES)


@each
def test_the_parameter_through_error_rates_is_that_of_their_curve(family, parameters) -> None:
    for parameter in parameters:
        curve = family.curve(parameter)
        for alpha in (0.01, 0.05, 0.3):
            beta = float(curve.tradeoff(np.array(alpha)))
            if beta > 0:
                through = float(family.through(np.array(alpha), np.array(beta)))
                assert through == pytest.approx(parameter, rel=1e-9)


@each
def test_curves_fall_with_the_parameter_and_invert_themselves(family, parameters) -> None:
    alpha = np.linspace(0.0, 1.0, 101)
    curves = [family.curve(parameter) for parameter in (0.0, *parameters)]
    for weaker, stronger in itertools.pairwise(curves):
        assert (stronger.tradeoff(alpha) <= weaker.tradeoff(alpha)).all()
    for curve in curves:
        beta = curve.tradeoff(alpha)
        inside = (beta > 0) & (beta < 1)
        np.testing.assert_allclose(curve.inverse(beta[inside]), alpha[inside], atol=1e-9)


@each
def test_the_complement_is_the_function_at_one_minus_the_rate(family, parameters) -> None:
    for parameter in parameters:
        curve = family.curve(parameter)
        for x in (0.9, 0.3, 1e-3, 0.0):
            expected = float(curve.tradeoff(np.array(1 - x)))
            assert curve.at_complement(x) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_complement_keeps_its_digits_where_one_minus_x_has_lost_them() -> None:
    assert 0 < gaussian_curve(1.0).at_complement(1e-20) < 1e-22


def test_a_curve_has_its_inverse_if_one_is_given() -> None:
    curve = Curve(tradeoff=lambda a: (1 - a) ** 2, inverse=lambda b: 1 - np.sqrt(b))
    assert curve.inverse(curve.tradeoff(np.array(0.3))) == pytest.approx(0.3)


def test_what_a_parameter_says() -> None:
    assert pairs_family(Question(delta=0.1)).answer(3.0, Question(delta=0.1)) == 3.0
    assert GAUSSIAN.answer(-1.0, Question(delta=0.1)) == 0.0
    epsilon = GAUSSIAN.answer(2.0, Question(delta=1e-3))
    assert float(gaussian_delta(epsilon, 2.0)) == pytest.approx(1e-3)
    assert GAUSSIAN.answer(2.0, Question(epsilon=epsilon)) == pytest.approx(1e-3)
