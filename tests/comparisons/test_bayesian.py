"""Bayesian bounds: against a dense twin, sampled posteriors, published figures, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import binomial
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.optimize import brentq
from scipy.special import betainc, betaincc, betaincinv, betaln, ndtr, ndtri

from dpaudit._arrays import broadcast_counts
from dpaudit.comparisons.bayesian import (
    RatePosterior,
    jeffreys,
    joint_beta,
    kept_probability,
    quantiles,
)
from dpaudit.curves import epsilon_of_errors
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.privacy import Question

# False positives, false negatives, negatives, positives: no errors, only errors, one sample,
# half a million of them, and every lopsided pair.
EXTREMES = [
    (20, 10, 500, 500),
    (512, 0, 513, 487),
    (0, 0, 1, 1),
    (1, 1, 1, 1),
    (0, 0, 500_000, 500_000),
    (500_000, 0, 500_000, 500_000),
    (499_999, 1, 500_000, 500_000),
    (0, 0, 1, 500_000),
    (0, 0, 500_000, 1),
    (250_000, 1, 500_000, 2),
    (3, 250_000, 10, 500_000),
    (40, 0, 400_000, 3),
]


def jeffreys_epsilon(*counts, delta, significance):  # type: ignore[no-untyped-def]
    return jeffreys(*counts, question=Question(delta=delta), significance=significance)


def joint_beta_epsilon(*counts, delta, significance):  # type: ignore[no-untyped-def]
    return joint_beta(*counts, question=Question(delta=delta), significance=significance)


def reversed_rate(rate: RatePosterior) -> RatePosterior:
    """The posteriors of one minus the rate."""
    return RatePosterior(
        errors=rate.successes,
        successes=rate.errors,
        low=1 - rate.high,
        high=1 - rate.low,
        log_beta=rate.log_beta,
    )


def kept_both_ways_probability(alpha, beta, epsilon, delta):  # type: ignore[no-untyped-def]
    """That of the test and its opposite, which has error rates 1 - alpha and 1 - beta.

    No pair of rates can violate a claim both ways, so the probabilities of a violation add up.
    """
    one = kept_probability(alpha, beta, epsilon, delta)
    other = kept_probability(reversed_rate(alpha), reversed_rate(beta), epsilon, delta)
    return one + other - 1


def joint_beta_interval(*counts, delta, significance):  # type: ignore[no-untyped-def]
    """The published interval of epsilon, which counts a test and its opposite."""
    columns, question, tail = broadcast_counts(*counts), Question(delta=delta), significance / 2
    return tuple(
        quantiles(columns, question, level, kept_both_ways_probability)
        for level in (tail, 1 - tail)
    )


def dense_kept(
    fp: int, fn: int, negatives: int, positives: int, epsilon: float, delta: float
) -> float:
    """P(claim kept) by brute force, in other variables than the code under test.

    Integrates over the false-negative rate on the normal-quantile scale, 20 nodes on each of some
    hundreds of panels, cut wherever the boundary bends or crosses a quantile of the other rate.
    """
    a, b = (fp + 0.5, negatives - fp + 0.5), (fn + 0.5, positives - fn + 0.5)
    levels = 10.0 ** np.arange(-14, 0)
    quantiles = np.r_[betaincinv(*a, np.r_[levels, 0.5]), 1 - betaincinv(a[1], a[0], levels)]
    growth = np.exp(epsilon)
    cuts = np.r_[
        (1 - delta) / (1 + growth),
        1 - delta,
        (1 - delta - quantiles) / growth,
        1 - delta - growth * quantiles,
    ]
    cuts = cuts[(cuts > 0) & (cuts < 1)]
    below, above = betainc(*b, cuts), betaincc(*b, cuts)
    z = np.clip(np.where(below < 0.5, ndtri(below), -ndtri(above)), -8.2, 8.2)
    edges = np.unique(np.r_[z, np.linspace(-8.2, 8.2, 200)])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    z = middle + half * nodes
    mass = half * weights * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    rate = np.where(z < 0, betaincinv(*b, ndtr(z)), 1 - betaincinv(b[1], b[0], ndtr(-z)))
    edge = np.maximum(1 - delta - growth * rate, (1 - delta - rate) / growth)
    return float((mass * betaincc(*a, np.maximum(edge, 0.0))).sum())


def kept(fp: int, fn: int, negatives: int, positives: int, epsilon: float, delta: float) -> float:
    alpha = RatePosterior.from_counts(np.array([float(fp)]), np.array([float(negatives)]))
    beta = RatePosterior.from_counts(np.array([float(fn)]), np.array([float(positives)]))
    return float(kept_probability(alpha, beta, np.array([epsilon]), np.array([delta]))[0])


@pytest.mark.parametrize("counts", EXTREMES, ids=str)
def test_posterior_agrees_with_the_dense_twin(counts: tuple[int, int, int, int]) -> None:
    for epsilon in (0.0, 0.05, 1.0, 4.0, 14.0):
        for delta in (0.0, 1e-5, 0.1):
            ours = kept(*counts, epsilon, delta)
            assert ours == pytest.approx(dense_kept(*counts, epsilon, delta), abs=2e-9)


@pytest.mark.parametrize("seed", range(30))
def test_posterior_agrees_with_the_dense_twin_for_random_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    negatives, positives = (10 ** rng.uniform(0, 5.7, 2)).astype(int)
    fp = rng.binomial(negatives, rng.beta(0.4, 0.4))
    fn = rng.binomial(positives, rng.beta(0.4, 0.4))
    epsilon, delta = rng.exponential(2), 10 ** rng.uniform(-7, -0.5)
    counts = (int(fp), int(fn), int(negatives), int(positives))
    assert kept(*counts, epsilon, delta) == pytest.approx(
        dense_kept(*counts, epsilon, delta), abs=2e-9
    )


@pytest.mark.parametrize("significance", [0.05, 1e-5])
@pytest.mark.parametrize("counts", EXTREMES, ids=str)
def test_bounds_are_the_quantiles_of_the_dense_twin(
    counts: tuple[int, int, int, int], significance: float
) -> None:
    epsilon = float(joint_beta_epsilon(*counts, delta=1e-5, significance=significance))
    if epsilon > 0:
        assert dense_kept(*counts, epsilon - 1e-6, 1e-5) < significance
    assert dense_kept(*counts, epsilon + 1e-6, 1e-5) > significance
    delta = float(joint_beta(*counts, question=Question(epsilon=0.5), significance=significance))
    if delta > 0:
        assert dense_kept(*counts, 0.5, max(delta - 1e-6, 0.0)) < significance
    assert dense_kept(*counts, 0.5, delta + 1e-6) > significance


def test_bound_is_the_quantile_of_a_sampled_posterior() -> None:
    rng = np.random.default_rng(0)
    alpha, beta = rng.beta(20.5, 480.5, 2_000_000), rng.beta(10.5, 490.5, 2_000_000)
    sampled = np.quantile(epsilon_of_errors(alpha, beta, 1e-5), 0.05)
    bound = joint_beta_epsilon(20, 10, 500, 500, delta=1e-5, significance=0.05)
    assert float(bound) == pytest.approx(sampled, abs=2e-3)


class TestPublishedFigures:
    def test_jeffreys(self) -> None:
        bound = jeffreys_epsilon(20, 10, 500, 500, delta=1e-5, significance=0.05)
        assert float(bound) == pytest.approx(3.285296, abs=1e-6)

    def test_joint_beta_is_within_the_tolerance_of_the_published_search(self) -> None:
        # privacy-estimates stops its root search at 1e-2, so its digits beyond are not the
        # posterior's. The exact quantile is 3.405455.
        bound = float(joint_beta_epsilon(20, 10, 500, 500, delta=1e-5, significance=0.05))
        assert bound == pytest.approx(3.407190, abs=1e-2)
        assert bound == pytest.approx(3.405455, abs=1e-6)

    def test_joint_beta_published_digits_come_from_a_coarse_search(self) -> None:
        # The posterior integrated to 5e-3 by dblquad, and Brent's method stopped at 1e-2 between
        # the ends of an 80 % Jeffreys interval: this gives the published digits, so it is in
        # them, not in the model, that we differ.
        norm = betaln(20.5, 480.5) + betaln(10.5, 490.5)

        def coarse(epsilon: float) -> float:
            def edge(beta: float) -> float:
                steep, flat = 1 - 1e-5 - math.exp(epsilon) * beta, 1 - 1e-5 - beta
                return max(0.0, steep, math.exp(-epsilon) * flat)

            def density(alpha: float, beta: float) -> float:
                if not (0 < alpha < 1 and 0 < beta < 1):
                    return 0.0
                log_alpha = 19.5 * math.log(alpha) + 479.5 * math.log1p(-alpha)
                return math.exp(log_alpha + 9.5 * math.log(beta) + 489.5 * math.log1p(-beta) - norm)

            def opposite(beta: float) -> float:
                return 1 - edge(1 - beta)

            return float(dblquad(density, 0, 1, edge, opposite, epsabs=5e-3)[0])

        ends = []
        for tail in (0.05, 0.95):
            alpha, beta = betaincinv(20.5, 480.5, tail), betaincinv(10.5, 490.5, tail)
            ends.append(float(epsilon_of_errors(alpha, beta, 1e-5)))
        root = brentq(lambda e: coarse(e) - 0.05, *sorted(ends), xtol=1e-2)
        assert root == pytest.approx(3.407190, abs=1e-6)

    def test_interval_is_within_the_tolerance_of_the_published_search(self) -> None:
        low, high = joint_beta_interval(512, 0, 513, 487, delta=1e-5, significance=0.1)
        assert float(low) == pytest.approx(0.145, abs=1e-2)
        assert float(high) == pytest.approx(6.399, abs=2e-2)
        assert (round(float(low), 3), round(float(high), 3)) == (0.144, 6.416)
        # Jeffreys corners claim nothing here.
        assert jeffreys_epsilon(512, 0, 513, 487, delta=1e-5, significance=0.1) == 0.0

    def test_interval_ends_are_quantiles_of_a_sampled_posterior(self) -> None:
        rng = np.random.default_rng(0)
        alpha, beta = rng.beta(512.5, 1.5, 2_000_000), rng.beta(0.5, 487.5, 2_000_000)
        worse = alpha + beta > 1
        alpha, beta = np.where(worse, 1 - alpha, alpha), np.where(worse, 1 - beta, beta)
        sampled = np.quantile(epsilon_of_errors(alpha, beta, 1e-5), [0.05, 0.95])
        low, high = joint_beta_interval(512, 0, 513, 487, delta=1e-5, significance=0.1)
        assert [float(low), float(high)] == pytest.approx(sampled, abs=6e-3)


def test_all_thresholds_at_once() -> None:
    rng = np.random.default_rng(0)
    out, inside = np.sort(rng.normal(size=2500)), np.sort(rng.normal(size=2500) + 1)
    cuts = np.r_[out, inside]
    fp, fn = 2500 - np.searchsorted(out, cuts), np.searchsorted(inside, cuts)
    bounds = joint_beta_epsilon(fp, fn, 2500, 2500, delta=1e-5, significance=0.05)
    assert bounds.shape == (5000,)
    assert np.isfinite(bounds).all()
    assert (bounds >= 0).all()


count = st.integers(0, 60)


@settings(deadline=None, max_examples=60)
@given(fp=count, tn=count, fn=count, tp=count, significance=st.floats(1e-6, 0.9))
def test_whatever_the_counts_bounds_are_finite_and_agree_with_their_duals(
    fp: int, tn: int, fn: int, tp: int, significance: float
) -> None:
    counts = (fp, fn, fp + tn, fn + tp)
    for bound in (jeffreys, joint_beta):
        epsilon = float(bound(*counts, question=Question(delta=1e-3), significance=significance))
        assert 0 <= epsilon < np.inf
        delta = float(bound(*counts, question=Question(epsilon=epsilon), significance=significance))
        assert 0 <= delta <= 1
        if epsilon > 0:
            assert delta == pytest.approx(1e-3, abs=1e-7)
        if 0 in (fp + tn, fn + tp):
            assert epsilon == 0


def test_bounds_fall_with_errors_with_delta_and_with_confidence() -> None:
    for bound in (jeffreys_epsilon, joint_beta_epsilon):
        by_errors = bound(np.arange(200), 30, 200, 200, delta=1e-5, significance=0.05)
        assert (np.diff(by_errors) <= 1e-9).all()
        by_delta = [float(bound(5, 9, 99, 99, delta=d, significance=0.05)) for d in (0, 0.01, 0.3)]
        assert by_delta == sorted(by_delta, reverse=True)
        by_level = [float(bound(5, 9, 99, 99, delta=0, significance=s)) for s in (1e-6, 0.01, 0.3)]
        assert by_level == sorted(by_level)


@pytest.mark.parametrize(
    ("alpha", "beta", "jeffreys_at_most", "joint_at_most"),
    [
        (0.5, 0.5, 0.05, 0.055),  # no leak
        (0.3, 0.65, 0.05, 0.055),  # one direction decides
        (0.2689, 0.2689, 0.05, 0.12),  # both do: randomised response at epsilon 1
        (0.0133, 0.0133, 0.14, 0.27),  # and few errors: the worst for jeffreys
        (0.0066, 0.0066, 0.14, 0.27),  # and fewer: the worst for joint-beta
    ],
)
def test_false_claims_of_credible_bounds_stay_at_the_documented_rates(
    alpha: float, beta: float, jeffreys_at_most: float, joint_at_most: float
) -> None:
    # Exact: every pair of counts of 200 a side, with its probability.
    n = 200
    p, q = binomial(n, alpha), binomial(n, beta)
    seen, other = np.flatnonzero(p > 1e-8), np.flatnonzero(q > 1e-8)
    fp, fn = (v.ravel() for v in np.meshgrid(seen, other, indexing="ij"))
    weight = p[fp] * q[fn]
    truth = float(epsilon_of_errors(np.array(alpha), np.array(beta), 1e-5))
    for bound, at_most in (
        (jeffreys_epsilon, jeffreys_at_most),
        (joint_beta_epsilon, joint_at_most),
    ):
        claims = bound(fp, fn, n, n, delta=1e-5, significance=0.05)
        assert weight[claims > truth + 1e-9].sum() <= at_most


def test_counting_the_opposite_test_claims_a_leak_where_there_is_none() -> None:
    # Why the lower bound does not: 500 a side, as many errors as a coin makes.
    low, _ = joint_beta_interval(250, 250, 500, 500, delta=1e-5, significance=0.1)
    assert float(low) > 0
    assert joint_beta_epsilon(250, 250, 500, 500, delta=1e-5, significance=0.05) == 0


def test_the_opposite_test_is_seen_where_both_count() -> None:
    low, high = joint_beta_interval(490, 480, 500, 500, delta=1e-5, significance=0.1)
    low_2, high_2 = joint_beta_interval(10, 20, 500, 500, delta=1e-5, significance=0.1)
    assert (float(low), float(high)) == pytest.approx((float(low_2), float(high_2)), abs=1e-7)
    alpha = RatePosterior.from_counts(np.array([20.0]), np.array([500.0]))
    beta = RatePosterior.from_counts(np.array([10.0]), np.array([500.0]))
    at = (np.array([3.0]), np.array([1e-5]))
    assert kept_both_ways_probability(alpha, beta, *at) == pytest.approx(
        kept_probability(alpha, beta, *at), abs=1e-12
    )


def test_bad_counts_are_named() -> None:
    with pytest.raises(InvalidScores, match=r"false_positives .* got 7 with negatives = 5"):
        joint_beta_epsilon([1, 7], 0, 5, 5, delta=0.0, significance=0.05)
    with pytest.raises(InvalidScores, match="false_negatives"):
        jeffreys_epsilon(0, -1, 5, 5, delta=0.0, significance=0.05)
    with pytest.raises(InvalidInput, match="significance"):
        jeffreys_epsilon(0, 1, 5, 5, delta=0.0, significance=1.5)
