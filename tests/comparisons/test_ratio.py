"""Ratio intervals: published limits, their defining equations, edge counts, and coverage."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from helpers import binomial
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from dpaudit.comparisons.ratio import (
    adjusted_log_ratio,
    bailey_ratio,
    inverse_sinh_ratio,
    katz_log_ratio,
    ratio_epsilon,
)
from dpaudit.curves import epsilon_of_errors
from dpaudit.errors import InvalidInput, InvalidScores

RATIOS = (katz_log_ratio, adjusted_log_ratio, bailey_ratio, inverse_sinh_ratio)
BOUNDS = tuple(partial(ratio_epsilon, limit) for limit in RATIOS)


@pytest.mark.parametrize(
    ("tp", "fn", "fp", "tn", "published"),
    [
        (473, 511, 755, 950, (1.01166194, 1.01189079, 1.01148934, 1.01167669)),
        (2, 697, 213, 313, (0.00220470, 0.00310880, 0.00162322, 0.00233503)),
        (1000, 10, 10, 10_000, (589.27335593, 568.32659563, 613.58766147, 592.63264572)),
        # No hit, no other hit, neither, and certainty on one side or both.
        (0, 511, 755, 950, (0.0, 0.00021568, 0.0, 0.0)),
        (2, 697, 0, 313, (0.13325535, 0.17571862, 0.18481008, 0.08081083)),
        (0, 10, 0, 10_000, (0.0, 0.0, 0.0, 0.0)),
        (473, 0, 755, 950, (2.15959024, 2.15883995, 2.15787013, 2.15959827)),
        (2, 697, 213, 0, (0.00089568, 0.00126522, 0.00066016, 0.00094821)),
        (1000, 0, 10, 0, (0.93375356, 0.93686007, 0.93591485, 0.93381958)),
    ],
)
def test_published_limits(
    tp: int, fn: int, fp: int, tn: int, published: tuple[float, float, float, float]
) -> None:
    # From the R package asbio, through the tests of tensorflow-privacy: one-sided, TPR over FPR.
    ours = [float(ratio(tp, tp + fn, fp, fp + tn, tail=0.05)) for ratio in RATIOS]
    assert ours == pytest.approx(published, abs=6e-9, rel=1e-9)


@pytest.mark.parametrize("tail", [0.2, 0.025, 1e-3, 1e-6])
def test_bailey_solves_its_own_equation(tail: float) -> None:
    # Cube roots as normal: p2^(1/3) R^(1/3) - p1^(1/3) is -z standard errors from 0. Also where
    # the textbook form divides by a number below 0 (few other hits, small tail).
    for hits, others in ((40, 12), (40, 3), (30, 1)):
        n, m = 50, 60
        limit = float(bailey_ratio(hits, n, others, m, tail=tail))
        p, q = hits / n, others / m
        # The delta method: the variance of p^(1/3) is p^(2/3) (1-p)/(9 hits).
        spread = math.sqrt(
            p ** (2 / 3) * (1 - p) / (9 * hits)
            + limit ** (2 / 3) * q ** (2 / 3) * (1 - q) / (9 * others)
        )
        deviation = (limit ** (1 / 3) * q ** (1 / 3) - p ** (1 / 3)) / spread
        assert deviation == pytest.approx(float(ndtri(tail)), rel=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bound_is_the_larger_direction_at_half_the_significance(bound) -> None:  # type: ignore[no-untyped-def]
    ratio = RATIOS[BOUNDS.index(bound)]
    forth = ratio(490, 500, 20, 500, tail=0.025)
    back = ratio(480, 500, 10, 500, tail=0.025)
    expected = math.log(max(float(forth), float(back)))
    ours = bound(20, 10, 500, 500, delta=0.0, significance=0.05)
    assert float(ours) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("bound", BOUNDS)
def test_delta_can_only_lower_the_bound(bound) -> None:  # type: ignore[no-untyped-def]
    deltas = (0.0, 1e-9, 1e-5, 0.1, 0.5, 0.97, 0.999)
    values = [float(bound(20, 10, 500, 500, delta=d, significance=0.05)) for d in deltas]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0
    # Roughly log(1 - delta) where the rate in the numerator is near 1.
    assert values[0] - values[3] == pytest.approx(-math.log(0.9), abs=0.02)


@pytest.mark.parametrize("bound", BOUNDS)
@settings(deadline=None, max_examples=60)
@given(
    fp=st.integers(0, 40),
    tn=st.integers(0, 40),
    fn=st.integers(0, 40),
    tp=st.integers(0, 40),
    delta=st.sampled_from([0.0, 1e-5, 0.3]),
    significance=st.floats(1e-9, 0.999),
)
def test_whatever_the_counts_bounds_are_finite(  # type: ignore[no-untyped-def]
    bound, fp: int, tn: int, fn: int, tp: int, delta: float, significance: float
) -> None:
    value = float(bound(fp, fn, fp + tn, fn + tp, delta=delta, significance=significance))
    assert 0 <= value < math.inf
    if 0 in (fp + tn, fn + tp):
        assert value == 0


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(0.5, 0.5), (0.2689, 0.2689), (0.0067, 0.0067), (0.024, 0.024), (0.01, 0.5), (0.3, 0.65)],
)
@pytest.mark.parametrize("n", [50, 200, 500])
def test_false_claims_stay_near_the_significance(n: int, alpha: float, beta: float) -> None:
    # Exact: every pair of counts with its probability. Asymptotic intervals may miss, and Bailey's
    # does.
    p, q = binomial(n, alpha), binomial(n, beta)
    seen, other = np.flatnonzero(p > 1e-8), np.flatnonzero(q > 1e-8)
    fp, fn = (v.ravel() for v in np.meshgrid(seen, other, indexing="ij"))
    weight = p[fp] * q[fn]
    truth = float(epsilon_of_errors(np.array(alpha), np.array(beta), 1e-5))
    for bound in BOUNDS:
        claims = bound(fp, fn, n, n, delta=1e-5, significance=0.05)
        assert weight[claims > truth + 1e-9].sum() <= (
            0.1 if bound.args == (bailey_ratio,) else 0.05
        )


def test_thresholds_come_back_in_their_shape() -> None:
    for bound in BOUNDS:
        values = bound(np.arange(6).reshape(2, 3), 3, 100, 120, delta=1e-5, significance=0.05)
        assert values.shape == (2, 3)
        assert (np.diff(values.ravel()[1:]) < 0).all()


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidScores, match="false_positives"):
        ratio_epsilon(katz_log_ratio, 7, 0, 5, 5, delta=0.0, significance=0.05)
    with pytest.raises(InvalidInput, match="tail"):
        bailey_ratio(1, 5, 1, 5, tail=0.7)
