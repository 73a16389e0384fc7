"""Theorems that every bound must obey, whatever the scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from families import (
    Gaussian,
    Laplace,
    RandomisedResponse,
    ScoreFamily,
    SubsampledGaussian,
    TwoPointMixture,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit import Claim, ErrorCounts, Scores, estimate, lower_bound, proven_curve, test_claim
from dpaudit.claims.fixed_sample import claim_p_value
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import METHODS
from dpaudit.upper_bounds import ACCOUNTANTS, all_upper_bounds

FAMILIES = (
    Gaussian(0.0),
    Gaussian(1.0),
    Gaussian(3.95),
    SubsampledGaussian(0.1, 2.0),
    Laplace(1.0),
    RandomisedResponse(4.0),
    RandomisedResponse(1.0, 0.05),
    TwoPointMixture(1.0),
)
FREE = [
    ("clopper-pearson", "pilot"),
    ("clopper-pearson", "simultaneous"),
    ("profile", "pilot"),
    ("one-run", "pilot"),
]
# Methods that read the scores only through their order, with rules that draw nothing.
RANKED = [
    ("clopper-pearson", "simultaneous"),
    ("clopper-pearson", "bonferroni"),
    ("clopper-pearson", "best"),
    ("gaussian-dp", "simultaneous"),
    ("gaussian-dp", "best"),
    ("joint-beta", "best"),
    ("katz-log", "best"),
    ("profile", "simultaneous"),
]
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
small_scores = st.lists(st.integers(-4, 4), min_size=2, max_size=30)


def quantile_scores(
    family: ScoreFamily, each: int, *, more: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Scores at the quantiles of both distributions, with ``more`` of them not inserted."""
    grid = np.linspace(-8, 14, 200_001)
    inserted, others = (
        np.interp((np.arange(size) + 0.5) / size, 1 - family.above(grid, label), grid)
        for size, label in ((each, True), (each + more, False))
    )
    return inserted, others


# Lower <= exact <= upper.


@by_name
@pytest.mark.parametrize(("method", "rule"), FREE)
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
def test_without_luck_no_bound_exceeds_the_truth(
    family: ScoreFamily, method: str, rule: str, delta: float
) -> None:
    # Exactly half inserted would be refused by the one-run methods.
    inserted, others = quantile_scores(family, 1000, more=9)
    bound = lower_bound(inserted, others, delta=delta, method=method, threshold=rule)
    assert bound.epsilon <= family.epsilon(delta) + 1e-9


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.95])
@pytest.mark.parametrize("method", METHODS)
def test_lower_exact_upper_of_a_gaussian_mechanism(mu: float, method: str) -> None:
    exact = Gaussian(mu).epsilon(1e-5)
    below = lower_bound(
        *quantile_scores(Gaussian(mu), 1000, more=9), delta=1e-5, method=method
    ).epsilon
    above = all_upper_bounds(noise_multiplier=1 / mu, steps=1, delta=1e-5)
    assert below <= exact
    assert {bound.method for bound in above} == set(ACCOUNTANTS)
    assert all(exact <= bound.epsilon * (1 + 1e-9) for bound in above)


def test_lower_exact_upper_of_a_sampled_step() -> None:
    family = SubsampledGaussian(0.3, 2.0)
    for delta in (1e-5, 0.01):
        exact = family.epsilon(delta)
        curve = proven_curve(Scores.from_samples(*quantile_scores(family, 2000)))
        above = all_upper_bounds(noise_multiplier=0.5, steps=1, sampling_rate=0.3, delta=delta)
        assert 0 < curve.epsilon_at(delta) <= exact
        assert all(exact <= bound.epsilon * (1 + 1e-6) for bound in above)


@by_name
def test_the_proven_curve_lies_below_the_exact_profile(family: ScoreFamily) -> None:
    curve = proven_curve(Scores.from_samples(*quantile_scores(family, 1000)))
    epsilons = np.linspace(0, 6, 61)
    assert (curve.delta_at(epsilons) <= family.delta(epsilons) + 1e-9).all()


# The dual pair: epsilon at delta, delta at epsilon.


@by_name
def test_more_delta_or_more_epsilon_never_proves_more(family: ScoreFamily) -> None:
    scores = Scores.from_samples(*family.audit(400, np.random.default_rng(3)))
    curve = proven_curve(scores)
    epsilons = [curve.epsilon_at(delta) for delta in (0.0, 1e-9, 1e-5, 1e-3, 0.01, 0.1, 0.5, 0.9)]
    assert epsilons == sorted(epsilons, reverse=True)
    deltas = curve.delta_at(np.linspace(0, 8, 50))
    assert (np.diff(deltas) <= 0).all()


@by_name
def test_epsilon_is_where_the_proven_delta_falls_below(family: ScoreFamily) -> None:
    curve = proven_curve(Scores.from_samples(*family.audit(400, np.random.default_rng(4))))
    for delta in (1e-5, 0.01, 0.1):
        epsilon = curve.epsilon_at(delta)
        assert curve.delta_at(epsilon + 1e-9) <= delta
        assert epsilon == 0 or curve.delta_at(epsilon - 1e-9) >= delta


@by_name
@pytest.mark.parametrize("delta", [1e-5, 0.01])
def test_profile_is_clopper_pearson_over_all_thresholds(family: ScoreFamily, delta: float) -> None:
    scores = Scores.from_samples(*family.audit(300, np.random.default_rng(5)))
    simultaneous = estimate(scores, delta=delta, method="clopper-pearson", threshold="simultaneous")
    assert estimate(scores, delta=delta, method="profile").epsilon == simultaneous.epsilon


# One-run methods choose their guesses anew at each confidence.
@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith("one-run")])
def test_more_confidence_never_proves_more(method: str) -> None:
    scores = Scores.from_samples(*Gaussian(2.0).audit(300, np.random.default_rng(6)))
    bounds = [
        estimate(scores, delta=1e-3, method=method, threshold="fixed=1", confidence=c).epsilon
        for c in (0.5, 0.8, 0.95, 0.999)
    ]
    assert bounds == sorted(bounds, reverse=True)


# Only the order of the scores matters.


@by_name
@pytest.mark.parametrize(("method", "rule"), RANKED)
def test_rising_transformations_of_the_scores_change_nothing(
    family: ScoreFamily, method: str, rule: str
) -> None:
    inserted, others = family.audit(120, np.random.default_rng(7))
    expected = lower_bound(inserted, others, delta=1e-3, method=method, threshold=rule)
    for rising in (np.exp, np.arctan, lambda x: x**3 + 5 * x - 100):
        moved = lower_bound(
            rising(inserted), rising(others), delta=1e-3, method=method, threshold=rule
        )
        assert moved.epsilon == expected.epsilon


@pytest.mark.parametrize("method", METHODS)
def test_changing_the_unit_of_the_scores_changes_nothing(method: str) -> None:
    # A pilot's threshold is half-way between two scores, which only straight lines respect.
    inserted, others = Gaussian(1.5).audit(200, np.random.default_rng(8))
    inserted = inserted[9:]
    expected = lower_bound(inserted, others, delta=1e-3, method=method).epsilon
    moved = lower_bound(4 * inserted - 8, 4 * others - 8, delta=1e-3, method=method).epsilon
    assert moved == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("method", "rule"), RANKED)
def test_the_order_of_the_rows_changes_nothing(method: str, rule: str) -> None:
    random = np.random.default_rng(9)
    inserted, others = Laplace(2.0).audit(150, random)
    expected = lower_bound(inserted, others, delta=1e-3, method=method, threshold=rule)
    shuffled = lower_bound(
        random.permutation(inserted),
        random.permutation(others),
        delta=1e-3,
        method=method,
        threshold=rule,
    )
    assert shuffled.epsilon == expected.epsilon


@pytest.mark.parametrize(("method", "rule"), [*RANKED, ("jeffreys", "best"), ("bailey", "best")])
@pytest.mark.parametrize("family", [Gaussian(1.5), RandomisedResponse(2.0)], ids=str)
def test_exchanging_with_and_without_the_canary_changes_nothing(
    family: ScoreFamily, method: str, rule: str
) -> None:
    inserted, others = family.audit(150, np.random.default_rng(10))
    expected = lower_bound(inserted, others, delta=1e-3, method=method, threshold=rule)
    mirrored = lower_bound(-others, -inserted, delta=1e-3, method=method, threshold=rule)
    assert mirrored.epsilon == pytest.approx(expected.epsilon, rel=1e-12)


@by_name
@pytest.mark.parametrize("method", ["clopper-pearson", "gaussian-dp"])
def test_coarser_scores_never_prove_more(family: ScoreFamily, method: str) -> None:
    # Post-processing cannot add information, and a valid bound must not pretend that it did.
    inserted, others = family.audit(200, np.random.default_rng(11))
    settings = {"delta": 1e-3, "method": method, "threshold": "simultaneous"}
    bounds = [
        lower_bound(np.floor(inserted * fine), np.floor(others * fine), **settings).epsilon
        for fine in (0.25, 0.5, 1, 2, 64)
    ]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= lower_bound(inserted, others, **settings).epsilon


# Nothing is claimed for nothing.


@settings(max_examples=40)
@given(inserted=small_scores, others=small_scores, method=st.sampled_from(list(METHODS)))
def test_any_scores_give_a_finite_bound_that_is_not_negative(
    inserted: list[int], others: list[int], method: str
) -> None:
    if method == "gaussian-fit" and (len(set(inserted)) < 2 or len(set(others)) < 2):
        return
    try:
        bound = lower_bound(np.array(inserted), np.array(others), delta=1e-5, method=method)
    except InvalidScores:
        if not method.startswith("one-run"):  # which refuse coins that are hardly fair
            raise
        return
    assert 0 <= bound.epsilon < math.inf
    assert bound.epsilon > 0 or bound.notes


@settings(max_examples=30)
@given(scores=small_scores)
def test_the_same_scores_with_and_without_the_canary_prove_nothing(scores: list[int]) -> None:
    # Every threshold has TPR = FPR, so no upper bounds on both rates can leave room for a leak.
    for method, rule in RANKED:
        bound = lower_bound(scores, scores, delta=0.01, method=method, threshold=rule)
        assert bound.epsilon == 0, method


@pytest.mark.parametrize("each", [1, 2, 10, 500, 5000])
def test_perfect_separation_proves_what_the_number_of_scores_allows(each: int) -> None:
    inserted, others = np.arange(each) + 1e6, np.arange(each) * 1.0
    best = lower_bound(inserted, others, delta=0.0, threshold="best").epsilon
    rate = 1 - 0.025 ** (1 / each)  # no error in n trials, at 2.5 % for each label
    assert best == pytest.approx(max(0.0, math.log((1 - rate) / rate)), rel=1e-9)
    simultaneous = lower_bound(inserted, others, delta=0.0, threshold="simultaneous").epsilon
    assert simultaneous <= best


@pytest.mark.parametrize("method", ["clopper-pearson", "gaussian-dp", "jeffreys", "joint-beta"])
def test_one_error_less_never_lowers_the_bound(method: str) -> None:
    sizes = (12, 9)
    bounds = np.array(
        [
            [
                estimate(
                    ErrorCounts.given(
                        true_positives=sizes[0] - fn,
                        false_negatives=fn,
                        false_positives=fp,
                        true_negatives=sizes[1] - fp,
                    ),
                    delta=0.01,
                    method=method,
                ).epsilon
                for fn in range(sizes[0] + 1)
            ]
            for fp in range(sizes[1] + 1)
        ]
    )
    assert (np.diff(bounds, axis=0) <= 1e-7).all()
    assert (np.diff(bounds, axis=1) <= 1e-7).all()


# Claims.


def test_a_weaker_claim_is_never_more_doubtful() -> None:
    counts = ErrorCounts.given(
        true_positives=180, false_negatives=20, false_positives=15, true_negatives=185
    )
    from_mu = [float(claim_p_value(counts, Claim.from_mu(mu))[0]) for mu in np.linspace(0, 5, 26)]
    assert from_mu == sorted(from_mu)
    points = [
        float(claim_p_value(counts, Claim.from_points([(epsilon, 1e-5)]))[0])
        for epsilon in np.linspace(0, 5, 26)
    ]
    assert points == sorted(points)
    assert 0 < from_mu[0] < 2e-5
    assert from_mu[-1] == pytest.approx(1.0)


def test_a_point_of_the_curve_claims_less_than_the_curve() -> None:
    scores = Scores.from_samples(*quantile_scores(Gaussian(2.0), 500))
    whole = Claim.from_mu(1.5)
    for delta in (1e-5, 1e-3):
        point = Claim.from_points([(Gaussian(1.5).epsilon(delta), delta)])
        alpha = np.linspace(0, 1, 101)
        assert (point.tradeoff(alpha) <= whole.tradeoff(alpha) + 1e-9).all()
        assert test_claim(scores, point).verdict != "violation"
    assert test_claim(scores, whole).verdict == "violation"


@pytest.mark.parametrize("family", FAMILIES[1:], ids=lambda family: family.name)
def test_a_claim_that_is_kept_survives_an_audit_without_luck(family: ScoreFamily) -> None:
    epsilons = np.linspace(0, 12, 100)
    claim = Claim.from_points(zip(epsilons, family.delta(epsilons), strict=True))
    scores = Scores.from_samples(*quantile_scores(family, 1000))
    test = test_claim(scores, claim)
    assert (test.suspected, test.refuted) == (False, ())
