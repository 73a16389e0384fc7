"""The simultaneous band: its probability of failure is exact, on all ranks and on a grid."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from dpaudit import Scores, estimate, proven_curve
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.simultaneous import crossing_probability, simultaneous_band, upper_rate


def test_clopper_pearson_upper_bound_inverts_the_binomial_tail():
    from scipy.special import bdtr

    for errors, trials in ((0, 10), (3, 50), (49, 50), (500, 2500)):
        rate = float(upper_rate(errors, trials, 0.01))
        assert bdtr(errors, trials, rate) == pytest.approx(0.01, rel=1e-9)
    assert upper_rate(7, 7, 0.01) == 1


def test_crossing_probability_by_enumeration():
    # n = 2: P(U(1) > b1 or U(2) > b2) from the joint density 2 on u1 < u2.
    level = 0.05
    first, second = upper_rate([0, 1], 2, level)
    inside = second**2 - (second - first) ** 2
    assert crossing_probability(2, level) == pytest.approx(1 - inside, rel=1e-12)


def test_crossing_probability_by_simulation():
    random = np.random.default_rng(0)
    for trials, level in itertools.product((5, 40, 300), (0.01, 0.002)):
        edges = upper_rate(np.arange(trials), trials, level)
        points = np.sort(random.random((20_000, trials)), axis=1)
        seen = (points > edges).any(axis=1).mean()
        exact = crossing_probability(trials, level)
        assert abs(seen - exact) < 4 * np.sqrt(exact / 20_000)


@pytest.mark.parametrize("trials", [1, 2, 3, 17, 100, 1000])
def test_the_band_spends_its_level_and_no_more(trials):
    spent = crossing_probability(trials, simultaneous_band(trials, 0.025).local_level)
    assert 0.025 * (1 - 2e-3) <= spent <= 0.025 * (1 + 1e-9)


def test_crossing_probability_is_that_of_the_recursion_over_first_failures():
    for trials, level in ((1, 0.3), (7, 0.01), (60, 1e-6), (400, 4e-4)):
        assert crossing_probability(trials, level) == pytest.approx(
            recursion(trials, level), rel=1e-9, abs=1e-13
        )


def recursion(trials: int, level: float) -> float:
    """The slow twin: the first failure is at rank i if i - 1 points lie below its bound."""
    edge = upper_rate(np.arange(trials), trials, level)
    first: list[float] = []
    for i in range(trials):
        started = binom.pmf(i, trials, edge[i])
        k = np.arange(i)
        share = (edge[i] - edge[:i]) / (1 - edge[:i])
        again = np.asarray(first) @ binom.pmf(i - k, trials - k, share) if i else 0.0
        first.append(max(0.0, started - again))
    return float(np.sum(first))


def test_local_level_at_2500_a_side():
    # All ranks would need 4.33e-4; the grid has fewer bounds to keep.
    assert simultaneous_band(2500, 0.025).local_level == pytest.approx(5.2e-4, rel=0.02)


def test_the_grid_of_ranks_is_conservative_between_its_ranks():
    trials = 40_000
    band = simultaneous_band(trials, 0.025)
    assert len(band.ranks) < 1500
    spent = crossing_probability(trials, band.local_level, band.ranks)
    assert 0.025 * (1 - 2e-3) <= spent <= 0.025
    counts = np.unique(np.geomspace(1, trials - 1, 200).astype(int))
    assert (band.upper(counts) >= upper_rate(counts, trials, band.local_level)).all()
    assert band.upper(trials) == 1
    assert (np.diff(band.upper(np.arange(0, trials, 97))) >= 0).all()


def test_coverage_on_the_grid_of_ranks_by_simulation():
    trials, repetitions = 16_000, 400
    band = simultaneous_band(trials, 0.05)
    random = np.random.default_rng(1)
    upper = band.upper(np.arange(trials))
    bad = sum(bool((np.sort(random.random(trials)) > upper).any()) for _ in range(repetitions))
    assert bad <= 0.05 * repetitions + 3 * np.sqrt(0.05 * 0.95 * repetitions)


@pytest.mark.parametrize("mu", [1.0, 3.95])
def test_more_scores_of_the_same_distribution_never_prove_less(mu):
    bounds = []
    for size in (500, 1999, 2001, 3999, 4001, 5000, 20_000):
        quantiles = ndtri((np.arange(size) + 0.5) / size)
        scores = Scores.from_samples(quantiles + mu, quantiles)
        bounds.append(
            [
                estimate(scores, delta=1e-5, method="profile").epsilon,
                estimate(
                    scores, delta=1e-5, method="gaussian-dp", threshold="simultaneous"
                ).epsilon,
            ]
        )
    # Quantiles of neighbouring sizes differ by rounding.
    assert (np.diff(bounds, axis=0) > -0.006).all()


@pytest.mark.parametrize("kind", [True, False])
def test_a_curve_needs_scores_of_both_kinds(kind: bool) -> None:
    with pytest.raises(InvalidScores, match="with and without"):
        proven_curve(Scores(score=[1.0, 2.0], inserted=[kind, kind]))
