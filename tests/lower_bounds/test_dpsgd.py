"""The family "DP-SGD with this rate and these steps": its curves, its bound, its false claims."""

import numpy as np
import pytest
from scipy.stats import binom

from dpaudit import Scores, estimate, upper_bound
from dpaudit.curves import gaussian_tradeoff
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import ErrorCounts
from dpaudit.lower_bounds.dpsgd import DpsgdCurves
from dpaudit.lower_bounds.joint_test import curve_refuted

RATES = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.7, 0.99, 1.0])
SETTINGS = {"rate": 0.1, "steps": 100}


def scores(count, *, noise, seed=0, rate=0.1, steps=100):
    """Log likelihood ratios of DP-SGD with and without the record."""
    random = np.random.default_rng(seed)
    groups = []
    for present in (rate, 0.0):
        total = np.zeros(count)
        for _ in range(steps):
            seen = random.normal(0.0, noise, count) + (random.random(count) < present)
            total += np.log1p(rate * np.expm1((2 * seen - 1) / (2 * noise**2)))
        groups.append(total)
    return Scores.from_samples(*groups)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_without_sampling_the_curve_is_nearly_gaussian_and_not_above(noise):
    curve = DpsgdCurves(rate=1.0, steps=9).curve(1 / noise)
    exact = gaussian_tradeoff(RATES, 3 / noise)
    assert (curve.tradeoff(RATES) <= exact + 1e-15).all()
    assert curve.tradeoff(RATES) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(("rate", "steps", "noise"), [(0.1, 100, 0.94), (0.01, 1000, 0.6)])
def test_the_curve_is_below_what_the_best_scores_attain(rate, steps, noise):
    curve = DpsgdCurves(rate=rate, steps=steps).curve(1 / noise)
    sample = scores(4000, noise=noise, rate=rate, steps=steps, seed=3)
    for threshold in np.quantile(sample.score, [0.3, 0.5, 0.7, 0.9]):
        alpha = (sample.other_scores > threshold).mean()
        beta = (sample.inserted_scores <= threshold).mean()
        # The best test attains the curve, within five standard deviations of both rates.
        assert curve.tradeoff(alpha) == pytest.approx(beta, abs=0.06)


def test_curves_fall_with_the_parameter_and_are_inverted():
    family = DpsgdCurves(**SETTINGS)
    curves = [family.curve(parameter) for parameter in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)]
    values = np.array([curve.tradeoff(RATES) for curve in curves])
    assert (np.diff(values, axis=0) <= 1e-12).all()
    inner = RATES[1:-1]
    for curve in curves[:5]:
        assert curve.inverse(curve.tradeoff(inner)) == pytest.approx(inner, rel=1e-6)


def test_the_curve_through_error_rates_has_their_parameter():
    family, alpha = DpsgdCurves(**SETTINGS), np.array([0.05, 0.3])
    beta = family.curve(0.8).tradeoff(alpha)
    assert family.through(alpha, beta) == pytest.approx([0.8, 0.8], rel=1e-3)
    assert family.through(np.array([0.5]), np.array([0.6])).tolist() == [0.0]


def test_a_true_curve_is_refuted_as_rarely_as_stated():
    """By enumeration of all counts, at several thresholds of the best test."""
    curve, size = DpsgdCurves(**SETTINGS).curve(1.0), 14
    counts = range(size + 1)
    refuted = np.array(
        [
            [
                curve_refuted(
                    ErrorCounts.given(
                        true_positives=size - misses,
                        false_negatives=misses,
                        false_positives=alarms,
                        true_negatives=size - alarms,
                    ),
                    curve,
                    0.05,
                )
                for misses in counts
            ]
            for alarms in counts
        ]
    )
    assert refuted.any()
    for alpha in (0.001, 0.02, 0.1, 0.2, 0.4, 0.7):
        beta = float(curve.tradeoff(alpha))
        chance = np.outer(binom.pmf(counts, size, alpha), binom.pmf(counts, size, beta))
        assert (chance * refuted).sum() <= 0.05


def test_the_bound_is_tight_and_below_the_truth():
    truth = upper_bound(noise_multiplier=0.9359, steps=100, sampling_rate=0.1, delta=1e-5)
    sample = scores(5000, noise=0.9359)
    bound = estimate(sample, delta=1e-5, method="dpsgd", sampling_rate=0.1, steps=100)
    assert 6.9 < bound.epsilon <= truth.epsilon  # gaussian-dp shows about 5.7
    assert bound.guarantee == "confidence"
    assert "sampling rate 0.1 and 100 steps" in bound.assumptions[0]
    assert bound.details["noise_multiplier"] >= 0.9359
    other = estimate(sample, epsilon=1.0, method="dpsgd", sampling_rate=0.1, steps=100)
    assert 0 < other.delta < 1


def test_scores_that_are_far_apart_have_a_finite_bound():
    sample = Scores.from_samples(np.full(500, 1e6), np.zeros(500))
    bound = estimate(sample, delta=1e-5, method="dpsgd", sampling_rate=0.5, steps=20)
    assert 20 < bound.epsilon < np.inf
    assert bound.details["noise_multiplier"] >= 0.2  # the least that the family resolves


def test_scores_without_a_leak_show_nothing():
    random = np.random.default_rng(0)
    sample = Scores.from_samples(random.normal(size=500), random.normal(size=500))
    bound = estimate(sample, delta=1e-5, method="dpsgd", sampling_rate=0.1, steps=100)
    assert bound.epsilon < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 10}, "needs sampling_rate"),
        ({"sampling_rate": 0.1}, "needs steps"),
        ({"sampling_rate": 0.0, "steps": 10}, "sampling_rate"),
        ({"sampling_rate": 0.1, "steps": 0}, "steps"),
        ({"sampling_rate": 0.1, "steps": 10, "threshold": "best"}, "pilot"),
        ({"sampling_rate": 0.1, "method": "gaussian-dp"}, "is for method 'dpsgd'"),
    ],
)
def test_bad_settings_are_named(settings, message):
    sample = Scores.from_samples(np.arange(50.0), np.arange(50.0) + 1)
    with pytest.raises(InvalidInput, match=message):
        estimate(sample, delta=1e-5, **({"method": "dpsgd"} | settings))
