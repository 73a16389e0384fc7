"""The simultaneous band: exact where it says so, conservative elsewhere."""

import itertools

import numpy as np
import pytest

from dpaudit.lower_bounds.bands import (
    MOST_EXACT,
    crossing_probability,
    simultaneous_band,
    upper_rate,
)


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
    assert 0.025 * (1 - 3e-4) <= spent <= 0.025 * (1 + 1e-9)


def test_local_level_at_2500_a_side():
    # The issue says "about 4e-4"; DKW or a union bound would be far off.
    assert simultaneous_band(2500, 0.025).local_level == pytest.approx(4.33e-4, rel=0.01)


def test_past_the_exact_size_the_band_is_a_union_bound():
    trials = 10 * MOST_EXACT
    band = simultaneous_band(trials, 0.025)
    assert band.local_level * len(band.ranks) == pytest.approx(0.025)
    # Conservative: never below the pointwise bound at the same count and level.
    counts = np.unique(np.geomspace(1, trials - 1, 200).astype(int))
    assert (band.upper(counts) >= upper_rate(counts, trials, band.local_level)).all()
    assert band.upper(trials) == 1
    assert (np.diff(band.upper(np.arange(0, trials, 97))) >= 0).all()


def test_past_the_exact_size_coverage_by_simulation():
    trials, repetitions = 4 * MOST_EXACT, 400
    band = simultaneous_band(trials, 0.05)
    random = np.random.default_rng(1)
    upper = band.upper(np.arange(trials))
    bad = sum(bool((np.sort(random.random(trials)) > upper).any()) for _ in range(repetitions))
    assert bad <= 0.05 * repetitions + 3 * np.sqrt(0.05 * 0.95 * repetitions)
