"""The joint test: exact levels by enumeration, the supremum, and sizes from 1 to ten million."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from dpaudit import Claim, ErrorCounts
from dpaudit.curves import (
    GAUSSIAN,
    Curve,
    Family,
    approximate_curve,
    gaussian_curve,
    pairs_family,
)
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.dpsgd import dpsgd_family
from dpaudit.lower_bounds.joint_test import (
    _LADDER,
    _even,
    _gaps,
    _interpolated,
    _is_as_far,
    _limits,
    _probability,
    _proven_distance,
    _region,
    _region_of,
    at_one_threshold,
    curve_p_value,
    curve_refuted,
)
from dpaudit.privacy import Question

NEGATIVES, POSITIVES = 24, 31
CURVES = {
    "no leak": gaussian_curve(0.0),
    "1-GDP": gaussian_curve(1.0),
    "3-GDP": gaussian_curve(3.0),
    "(1, 0.05)": approximate_curve(1.0, 0.05),
    "(3, 0)": approximate_curve(3.0, 0.0),
    "two pairs": Claim.from_points([(0.3, 0.2), (2.0, 0.0)]).curve,
}


def counts_of(
    x: int, y: int, negatives: int = NEGATIVES, positives: int = POSITIVES
) -> ErrorCounts:
    return ErrorCounts.given(
        true_positives=positives - y,
        false_negatives=y,
        false_positives=x,
        true_negatives=negatives - x,
    )


def every_pair(function) -> np.ndarray:
    return np.array(
        [[function(counts_of(x, y)) for y in range(POSITIVES + 1)] for x in range(NEGATIVES + 1)]
    )


def weights(alpha: float, beta: float) -> np.ndarray:
    return np.outer(
        binom.pmf(np.arange(NEGATIVES + 1), NEGATIVES, alpha),
        binom.pmf(np.arange(POSITIVES + 1), POSITIVES, beta),
    )


@pytest.mark.parametrize("name", CURVES)
def test_the_p_value_has_every_level_everywhere_on_the_curve(name: str) -> None:
    curve = CURVES[name]
    p_values = every_pair(lambda counts: curve_p_value(counts, curve)).ravel()
    order = p_values.argsort()
    alphas = np.unique(np.concatenate([np.linspace(0, 1, 201), curve.kinks]))
    for alpha, beta in zip(alphas, curve.tradeoff(alphas), strict=True):
        chance_of_less = weights(alpha, beta).ravel()[order].cumsum()
        assert (chance_of_less <= p_values[order] + 1e-12).all()


@pytest.mark.parametrize(
    ("family", "truths"),
    [
        (GAUSSIAN, (0.0, 0.5, 1.0, 2.0, 3.5)),
        (pairs_family(Question(delta=0.02)), (0.0, 0.5, 1.0, 2.5)),
        (pairs_family(Question(epsilon=0.5)), (0.0, 0.1, 0.4, 0.8)),
        (pairs_family(Question(delta=0.0)), (0.0, 0.5, 2.0, 3.0)),
    ],
    ids=["mu", "epsilon", "delta", "pure epsilon"],
)
def test_bounds_exceed_the_truth_with_at_most_their_level(family, truths) -> None:
    bounds = every_pair(lambda counts: at_one_threshold(counts, family, 0.05))
    largest = 0.0
    for truth in truths:
        curve = family.curve(truth)
        alphas = np.unique(np.concatenate([np.linspace(0, 1, 201), curve.kinks]))
        for alpha, beta in zip(alphas, curve.tradeoff(alphas), strict=True):
            largest = max(largest, weights(alpha, beta)[bounds > truth].sum())
    assert 0.03 < largest <= 0.05


def largest_on_a_dense_grid(counts, region, curve: Curve, gamma: float) -> float:
    (least, highest), (least_other, other) = _limits(counts, gamma)
    if curve.tradeoff(np.array(least)) < least_other:
        return 1.0
    lowest = max(least, float(curve.inverse(np.array(other))))
    highest = min(highest, float(curve.inverse(np.array(least_other))))
    if lowest >= highest:
        return 0.0
    alpha = np.concatenate([_even(lowest, highest, 3001), curve.kinks])
    alpha = np.append(alpha, curve.inverse(_even(float(curve.tradeoff(highest)), other, 3001)))
    alpha = np.clip(alpha, lowest, highest)
    return max(
        float(_probability(counts, region, part, curve.tradeoff(part)).max())
        for part in np.array_split(alpha, 20)
    )


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(
    ("x", "y", "sizes"),
    [(0, 0, (300, 300)), (3, 5, (300, 300)), (40, 60, (900, 900)), (30, 1, (900, 25))],
)
def test_p_values_exceed_the_largest_probability_of_a_dense_grid(
    name: str, x: int, y: int, sizes: tuple[int, int]
) -> None:
    curve, counts = CURVES[name], counts_of(x, y, *sizes)
    region, p_value = _region_of(counts, curve), curve_p_value(counts, curve)
    if region is None:
        assert p_value == 1.0
        return
    gamma = next(gamma for least, gamma in _LADDER if p_value >= least)
    largest = largest_on_a_dense_grid(counts, region, curve, gamma)
    assert largest + gamma <= p_value <= largest * 1.002 + 1.01 * gamma


def test_a_second_peak_of_an_unbalanced_audit_is_found() -> None:
    """A grid alone gave 0.04999 for these counts, where the truth is above 0.05003."""
    curve = approximate_curve(1.997, 1.4949791293363283e-06)
    counts = counts_of(2242, 3, 3201, 181)
    assert curve_p_value(counts, curve) > 0.05003
    assert not curve_refuted(counts, curve, 0.05)


@pytest.mark.parametrize("seed", range(8))
def test_p_values_of_random_unbalanced_audits_are_proven(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(4):
        sizes = (10 ** random.uniform([0.7, 1.7], [2.5, 3.3])).astype(int)
        sizes = random.permutation(sizes).tolist()
        curve = (
            gaussian_curve(random.uniform(0.2, 4))
            if random.random() < 0.5
            else approximate_curve(random.uniform(0, 4), 10 ** random.uniform(-6, -1))
        )
        alpha = random.beta(0.5, 1.5)
        beta = float(curve.tradeoff(np.array(alpha)))
        shift = random.uniform(1.4, 2.2) * np.sqrt(sizes[1] * beta * (1 - beta))
        counts = counts_of(round(sizes[0] * alpha), max(0, round(sizes[1] * beta - shift)), *sizes)
        p_value = curve_p_value(counts, curve)
        region = _region_of(counts, curve)
        if region is not None and p_value >= 1e-3:
            assert largest_on_a_dense_grid(counts, region, curve, 1e-5) + 1e-5 <= p_value


@pytest.mark.parametrize("name", CURVES)
def test_interpolation_in_natural_parameters_bounds_the_probability(name: str) -> None:
    curve, counts = CURVES[name], counts_of(4, 7, 60, 45)
    region = _region(counts, curve, 0.5)
    edges = np.linspace(0.0, 1.0, 24)
    bounds = _interpolated(counts, region, curve, edges[:-1], edges[1:])
    sharp = 0
    for left, right, bound in zip(edges, edges[1:], bounds, strict=False):
        alpha = np.linspace(left, right, 201)
        largest = _probability(counts, region, alpha, curve.tradeoff(alpha)).max()
        assert not bound < largest  # NaN counts as not proven
        sharp += bound < 1.3 * largest
    assert sharp > 3


def test_decisions_agree_with_p_values() -> None:
    for curve in CURVES.values():
        for x, y in ((0, 0), (1, 2), (3, 5), (6, 9), (2, 14)):
            p_value = curve_p_value(counts_of(x, y), curve)
            for level in (0.2, 0.05, 1e-3, 1e-7):
                if abs(p_value / level - 1) > 1e-3:
                    assert curve_refuted(counts_of(x, y), curve, level) == (p_value <= level)


@pytest.mark.parametrize(("each", "highest"), [(40, 1e-9), (5_000, 2e-13), (10**7, 2e-13)])
def test_p_values_have_no_floor_that_a_strict_level_would_notice(each: int, highest: float) -> None:
    assert 0 < curve_p_value(counts_of(0, 0, each, each), gaussian_curve(0.5)) <= highest
    assert curve_refuted(counts_of(0, 0, each, each), gaussian_curve(0.5), 1e-9)


def test_small_p_values_are_those_of_perfect_separation() -> None:
    """No error has the probability (1 - a)^n (1 - b)^n, which is largest at equal rates."""
    for epsilon in (1.0, 2.0):
        corner = 1 / (1 + np.exp(epsilon))
        for each in (10, 30, 60):
            exact = (1 - corner) ** (2 * each)
            p_value = curve_p_value(counts_of(0, 0, each, each), approximate_curve(epsilon, 0.0))
            assert exact <= p_value <= 1.02 * exact + 2e-13


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("x", "y", "sizes"), [(3, 5, (300, 300)), (10, 0, (400, 30))])
def test_the_distance_is_proven_up_to_the_nearest_point(
    name: str, x: int, y: int, sizes: tuple[int, int]
) -> None:
    curve, counts = CURVES[name], counts_of(x, y, *sizes)
    alpha = np.concatenate([_even(0.0, 1.0, 40_001), curve.kinks])
    nearest = float(np.hypot(*np.maximum(_gaps(counts, alpha, curve.tradeoff(alpha)), 0)).min())
    assert _proven_distance(counts, curve) == pytest.approx(nearest, rel=0.03, abs=2e-3)
    if nearest > 0.01:
        assert _is_as_far(counts, curve, 0.999 * nearest - 1e-3)
        assert not _is_as_far(counts, curve, 1.001 * nearest + 1e-3)


@pytest.mark.parametrize("each", [6, 10])
def test_counts_on_the_curve_do_not_speak_against_it(each: int) -> None:
    """Their distance from points of the curve is above 0, because the curve lies between them."""
    for x in range(each + 1):
        assert curve_p_value(counts_of(x, each - x, each, each), gaussian_curve(0.0)) == 1.0


def test_the_probability_of_a_region_is_a_sum_over_its_pairs() -> None:
    curve, counts = gaussian_curve(1.0), counts_of(3, 4)
    xs, ys = _region(counts, curve, 1.0)
    inside = np.zeros((NEGATIVES + 1, POSITIVES + 1), dtype=bool)
    for x, y in zip(xs.astype(int), ys.astype(int), strict=True):
        inside[: x + 1, : y + 1] = True
    assert inside[3, 4]
    alpha, beta = np.array([0.2, 0.5]), np.array([0.3, 0.1])
    expected = [weights(a, b)[inside].sum() for a, b in zip(alpha, beta, strict=True)]
    assert _probability(counts, (xs, ys), alpha, beta) == pytest.approx(expected, rel=1e-9)


def test_no_error_at_all_is_the_closed_form() -> None:
    # At the corner of (epsilon, 0)-DP no error has probability (1 - c)^(2 n).
    bound = at_one_threshold(counts_of(0, 0, 2250, 2250), pairs_family(Question(delta=0.0)), 0.05)
    corner = 1 - (0.05 - 5e-4) ** (1 / 4500)
    assert bound == pytest.approx(np.log(1 / corner - 1), abs=1e-3)
    assert bound >= 7.2


@pytest.mark.parametrize("each", [10**4, 10**6, 10**8])
@pytest.mark.parametrize("share", [0.99, 0.5, 0.05])
def test_an_event_that_never_occurs_on_one_side_is_the_closed_form(each: int, share: float) -> None:
    """Zero occurrences have probability (1 - b)^n, and the other rate is known all but exactly.

    Both rates at the level of one half each would give 0.26 less.
    """
    family, never = pairs_family(Question(delta=0.0)), 1 - (0.1 - 1e-3) ** (1 / each)
    often = round(share * each)
    for counts in (counts_of(0, each - often, each, each), counts_of(each - often, 0, each, each)):
        bound, estimate = at_one_threshold(counts, family, 0.1), np.log(share / never)
        assert estimate - 4 * np.sqrt((1 - share) / often) - 0.01 < bound < estimate + 0.1


@pytest.mark.parametrize("errors", [(0, 0), (0, 9), (9, 0), (30, 0), (0, 30)])
@pytest.mark.parametrize(
    "family",
    [GAUSSIAN, pairs_family(Question(delta=0.0)), dpsgd_family([(1, 0.1, 10)])],
    ids=["gaussian", "pairs", "dpsgd"],
)
def test_the_test_refutes_no_parameter_that_allows_everything(
    errors: tuple[int, int], family: Family
) -> None:
    """Curves of large parameters are 0 in floating point, as is the lower limit of zero errors."""
    counts = counts_of(*errors, 36, 36)
    assert at_one_threshold(counts, family, 0.05) < min(10.0, family.highest)
    assert curve_p_value(counts, family.curve(min(4096.0, family.highest))) == 1.0


def test_zero_occurrences_are_no_proof_of_more_than_the_truth() -> None:
    """Exact false-alarm rate of the bound on epsilon: an event of rate 0.4, and of rate b.

    The number without occurrence decides; the other one is summed over all of its values.
    """
    each, family = 200, pairs_family(Question(delta=0.0))
    often = np.arange(0.4 * each - 28, 0.4 * each + 29).round().astype(int)
    bounds = np.array(
        [[at_one_threshold(counts_of(x, each - y, each, each), family, 0.1) for y in often]
         for x in range(5)]
    )  # fmt: skip
    largest = 0.0
    for truth in np.linspace(3.0, 6.0, 31):
        alpha = 0.4 * np.exp(-truth)
        chance = np.outer(binom.pmf(range(5), each, alpha), binom.pmf(often, each, 0.4))
        largest = max(largest, chance[bounds > truth].sum())
    assert 0.08 < largest <= 0.1


@pytest.mark.parametrize("each", [1, 2, 10, 10**4, 10**6, 10**7])
def test_any_size_gives_a_bound_near_the_rates(each: int) -> None:
    errors = each // 10
    mu = at_one_threshold(counts_of(errors, errors, each, each), GAUSSIAN, 0.05)
    assert 0 <= mu < 2.563103
    if each >= 10**4:
        assert mu > 2.563103 - 8 / np.sqrt(each)


@pytest.mark.parametrize("trials", [10, 10**6, 10**7, 10**8, 10**10])
def test_binomial_p_values_at_every_size(trials: int) -> None:
    errors = np.array([0, trials // 3, trials - 1, trials])
    counts = counts_of(0, 0, trials, trials)
    for most in errors.astype(float):
        spread = np.sqrt(max(most / trials * (1 - most / trials), 1 / trials) / trials)
        rates = np.clip(most / trials + spread * np.linspace(-6, 6, 41), 0, 1)
        expected = binom.cdf(most, trials, rates)
        region, nothing = (np.array([most]), np.array([0.0])), np.zeros(41)
        ours = _probability(counts, region, rates, nothing)
        np.testing.assert_allclose(ours, expected, atol=1e-7)
        ours = _probability(counts, region[::-1], nothing, rates)
        np.testing.assert_allclose(ours, expected, atol=1e-7)


@pytest.mark.parametrize("size", [10**8, 10**12, 10**15])
def test_many_scores_come_close_to_the_truth_from_below(size: int) -> None:
    truth = 2 * ndtri(0.75)
    bound = at_one_threshold(counts_of(size // 4, size // 4, size, size), GAUSSIAN, 0.05)
    assert truth - 20 / np.sqrt(size) - 3e-6 < bound < truth


@pytest.mark.parametrize("each", [10**4, 10**6, 10**8])
@pytest.mark.parametrize("rate", [0.5, 0.02])
def test_a_bound_is_as_near_the_estimate_at_every_size(each: int, rate: float) -> None:
    """At 90 % confidence, 1.28 standard deviations would be exact for one rate that is known."""
    positives, negatives = round(rate * each), round(rate * np.exp(-0.1) * each)
    counts = counts_of(negatives, each - positives, each, each)
    estimate = np.log(positives / negatives)
    deviation = np.sqrt((1 - rate) / positives + (1 - rate) / negatives)
    bound = at_one_threshold(counts, pairs_family(Question(delta=0.0)), 0.1)
    assert estimate - bound < 1.7 * deviation


def test_counts_beyond_what_floats_hold_are_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"false_positives must be at most 1,000,000,000,000,000"
    ):
        counts_of(10**15 + 1, 1, 10**15 + 2, 2)


def test_a_curve_may_have_many_kinks() -> None:
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=20, sampling_rate=0.1)
    assert len(claim.curve.kinks) > 20
    without = Curve(tradeoff=claim.tradeoff, inverse=claim.tradeoff)
    for x, y in ((20, 30), (100, 60)):
        counts = counts_of(x, y, 500, 500)
        p_value = curve_p_value(counts, claim.curve)
        assert p_value == pytest.approx(curve_p_value(counts, without), rel=2e-3)
