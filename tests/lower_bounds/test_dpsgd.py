"""The family "DP-SGD with this rate and these steps": its curves, its bound, its false claims."""

import numpy as np
import pytest
from scipy.stats import binom

from dpaudit import Scores, estimate, estimate_all, upper_bound
from dpaudit.curves import gaussian_delta, gaussian_epsilon, gaussian_tradeoff
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import ErrorCounts
from dpaudit.lower_bounds.dpsgd import (
    _composed,
    _one_step,
    _profile,
    _share_above,
    dpsgd_family,
)
from dpaudit.lower_bounds.joint_test import curve_refuted
from dpaudit.privacy import Question
from dpaudit.upper_bounds.pld import PldAccountant
from dpaudit.upper_bounds.steps import NoisySteps

RATES = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.7, 0.99, 1.0])
HISTORY = ((1.0, 0.1, 100),)


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
    curve = dpsgd_family(((1.0, 1.0, 9),)).curve(1 / noise)
    exact = gaussian_tradeoff(RATES, 3 / noise)
    assert (curve.tradeoff(RATES) <= exact + 1e-15).all()
    assert curve.tradeoff(RATES) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(("rate", "steps", "noise"), [(0.1, 100, 0.94), (0.01, 1000, 0.6)])
def test_the_curve_is_below_what_the_best_scores_attain(rate, steps, noise):
    curve = dpsgd_family(((1.0, rate, steps),)).curve(1 / noise)
    sample = scores(4000, noise=noise, rate=rate, steps=steps, seed=3)
    for threshold in np.quantile(sample.score, [0.3, 0.5, 0.7, 0.9]):
        alpha = (sample.other_scores > threshold).mean()
        beta = (sample.inserted_scores <= threshold).mean()
        # The best test attains the curve, within five standard deviations of both rates.
        assert curve.tradeoff(alpha) == pytest.approx(beta, abs=0.06)


@pytest.mark.parametrize(
    ("rate", "steps", "noise"), [(0.1, 100, 0.94), (0.01, 1000, 0.6), (0.9, 3, 4.0), (0.3, 1, 1.0)]
)
def test_deltas_are_above_those_of_a_fine_accountant(rate, steps, noise):
    """dp-accounting takes the larger of both directions, which at positive epsilons is this one."""
    epsilons, deltas = _profile([(noise, rate, steps)])
    described = NoisySteps(noise_multiplier=noise, steps=steps, sampling_rate=rate)
    for epsilon, delta in list(zip(epsilons, deltas, strict=True))[200::20]:
        fine = PldAccountant().delta(described, epsilon=float(epsilon))
        assert delta >= fine.value - fine.numerical_error
        assert delta <= fine.value * 1.02 + 1e-9


@pytest.mark.parametrize("steps", [2, 100, 10_000])
def test_composition_by_convolution_is_above_the_closed_form(steps):
    """Of steps without sampling, for which the family uses the closed form."""
    sigma, interval = 4.0 * steps**0.5, 0.00625 / steps**0.5
    first, masses, infinite = _one_step(1.0, sigma, interval)
    place, composed = _composed([(first, masses, steps)])
    losses = interval * (place + np.arange(len(composed)))
    for epsilon in (-0.5, 0.0, 0.2, 1.0):
        above = losses > epsilon
        delta = steps * infinite - (composed[above] * np.expm1(epsilon - losses[above])).sum()
        exact = float(gaussian_delta(epsilon, 0.25))
        assert delta + 1e-15 + 4 * steps * 2.3e-16 >= exact
        assert delta == pytest.approx(exact, rel=0.05)


def test_equal_groups_are_one_group_and_unequal_noise_has_one_scale():
    alone = dpsgd_family(((3.0, 0.1, 100),)).curve(1.0)
    halves = dpsgd_family(((3.0, 0.1, 40), (3.0, 0.1, 60))).curve(1.0)
    assert halves.tradeoff(RATES) == pytest.approx(alone.tradeoff(RATES), abs=1e-9)
    mixed = dpsgd_family(((2.0, 1.0, 4), (1.0, 1.0, 1)))  # without sampling mu adds in squares
    exact = gaussian_tradeoff(RATES, 2**0.5)
    assert mixed.curve(1.0).tradeoff(RATES) == pytest.approx(exact, abs=1e-3)
    assert mixed.answer(1.0, Question(delta=1e-5)) == pytest.approx(
        gaussian_epsilon(1e-5, 2**0.5), abs=0.02
    )
    assert mixed.answer(1.0, Question(delta=1e-5)) <= gaussian_epsilon(1e-5, 2**0.5)


def test_a_changing_history_has_a_tight_bound():
    sample = scores(3000, noise=0.9359)
    equal = estimate(sample, delta=1e-5, method="dpsgd", sampling_rate=0.1, steps=100)
    history = [(0.9359, 0.1, 50), (0.9359, 0.1, 50)]
    assert estimate(sample, delta=1e-5, method="dpsgd", history=history).epsilon == pytest.approx(
        equal.epsilon, rel=1e-6
    )
    louder = estimate(sample, delta=1e-5, method="dpsgd", history=[(1.0, 0.1, 50), (4.0, 0.1, 50)])
    assert louder.epsilon > 0
    assert "unequal noise" in louder.assumptions[0]


def test_curves_fall_with_the_parameter_and_are_inverted():
    family = dpsgd_family(HISTORY)
    curves = [family.curve(parameter) for parameter in (0.0, 1e-200, 0.1, 0.5, 1.0, 2.0, 5.0)]
    values = np.array([curve.tradeoff(RATES) for curve in curves])
    assert (np.diff(values, axis=0) <= 1e-12).all()
    inner = RATES[1:-1]
    for curve in curves[2:6]:
        assert curve.inverse(curve.tradeoff(inner)) == pytest.approx(inner, rel=1e-6)


def test_the_curve_through_error_rates_has_their_parameter():
    family, alpha = dpsgd_family(HISTORY), np.array([0.05, 0.3])
    beta = family.curve(0.8).tradeoff(alpha)
    assert family.through(alpha, beta) == pytest.approx([0.8, 0.8], rel=1e-3)
    assert family.through(np.array([0.5]), np.array([0.6])).tolist() == [0.0]


def test_a_true_curve_is_refuted_as_rarely_as_stated():
    """By enumeration of all counts, at several thresholds of the best test."""
    curve, size = dpsgd_family(HISTORY).curve(1.0), 14
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
    assert bound.assumptions[0] == "the mechanism is DP-SGD with sampling rate 0.1 and 100 steps"
    assert bound.details["noise_multiplier"] >= 0.9359
    other = estimate(sample, epsilon=1.0, method="dpsgd", sampling_rate=0.1, steps=100)
    assert 0 < other.delta < 1


def test_the_pilot_never_chooses_a_threshold_at_the_end_of_the_scores():
    """Differences of less than one error were rounded, so that 99.8 % were above."""
    family = dpsgd_family(((1.0, 0.01, 10_000),))
    for member in (10, 60, 100, 101, 102, 103, 140):
        assert 0.2 < _share_above(family, member, 450, 450) < 0.8


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
        ({"sampling_rate": 0.1}, "and steps"),
        ({"sampling_rate": 0.1, "steps": 9, "history": [(1.0, 0.1, 9)]}, "history instead"),
        ({"history": []}, "at least one group"),
        ({"history": [(0.0, 0.1, 9)]}, "noise of a history"),
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


def test_several_methods_refuse_settings_that_none_of_them_reads():
    sample = Scores.from_samples(np.arange(50.0), np.arange(50.0) + 1)
    with pytest.raises(InvalidInput, match="steps is for method 'dpsgd', got 'gaussian-dp'"):
        estimate_all(sample, delta=1e-5, methods=["gaussian-dp"], steps=10)


@pytest.mark.parametrize("masses", [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1.0]])
def test_losses_are_composed_without_leaving_any_out(masses: list[float]) -> None:
    first, composed = _composed([(-3, np.array(masses), 2), (1, np.array([0.25, 0.75]), 1)])
    expected = np.convolve(np.convolve(masses, masses), [0.25, 0.75])
    assert first == 2 * -3 + 1
    np.testing.assert_allclose(composed, expected, atol=1e-15)
