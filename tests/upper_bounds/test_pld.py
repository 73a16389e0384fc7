"""PLD: above the truth always, and by no more than it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom

from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.testing.accountants import exact_delta
from dpaudit.upper_bounds import NoisySteps, PldAccountant, privacy_profile, upper_bound
from dpaudit.upper_bounds.pld import Curve, affordable, coarse_profile, composed_range

COARSE = PldAccountant(interval=1e-3)


@pytest.mark.parametrize(
    ("sigma", "count", "delta"),
    [(1000.0, 1, 1e-5), (20.0, 30, 1e-8), (4.0, 250, 1e-5), (0.2, 3, 1e-5), (0.05, 1, 1e-5)],
)
def test_agrees_with_the_closed_form_without_sampling(
    sigma: float, count: int, delta: float
) -> None:
    steps = NoisySteps(noise_multiplier=sigma, steps=count)
    bound = PldAccountant(interval=5e-4).epsilon(steps, delta=delta)
    exact = gaussian_epsilon(delta, steps.mu)
    assert exact - 1e-9 <= bound.epsilon <= exact + 1e-4
    assert bound.epsilon - (bound.numerical_error or 0) <= exact


@pytest.mark.parametrize("count", [10, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 6.0])
def test_round_off_of_composition_is_covered(count: int, epsilon: float) -> None:
    # A rate this close to 1 takes the path of composition; the truth is the closed form.
    sigma = math.sqrt(count)
    sampled = NoisySteps(noise_multiplier=sigma, steps=count, sampling_rate=1 - 1e-15)
    assert sampled.subsampled
    bound = PldAccountant(interval=1e-4).delta(sampled, epsilon=epsilon)
    exact = exact_delta(NoisySteps(noise_multiplier=sigma, steps=count), epsilon)
    assert bound.numerical_error is not None
    assert bound.delta - bound.numerical_error <= exact <= bound.delta


@pytest.mark.parametrize("count", [50, 1000, 20_000])
def test_the_roundings_add_up_to_more_than_the_drift_as_rarely_as_stated(count: int) -> None:
    """Against the exact distribution of the worst rounding: up or down by half an interval."""
    h = 0.01
    curve = Curve(
        distribution=None, steps=count, interval=h, relative_roundoff=0.0, roundoff=0.0, floor=0.0
    )
    eta, drift = curve.drift(1e-5)
    # Each rounding is h - a or -a, with E[e^-rounding] = 1.
    a = -math.log((1 + math.exp(-h)) / 2)

    def exceeding(total: float) -> float:
        return float(binom.sf(math.floor((total + count * a) / h), count, 0.5))

    assert 0 < eta <= 1e-9
    assert exceeding(drift) <= eta
    assert exceeding(drift / 1.3) > eta


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_roundings_of_few_steps_surely_add_up_to_less_than_an_interval_each(count: int) -> None:
    curve = Curve(
        distribution=None, steps=count, interval=0.01, relative_roundoff=0, roundoff=0, floor=0
    )
    assert curve.drift(1e-5) == (0.0, count * 0.01)


def test_the_stated_error_is_the_distance_to_the_lower_end() -> None:
    steps = NoisySteps(noise_multiplier=1.0, steps=100, sampling_rate=0.02)
    bound = COARSE.epsilon(steps, delta=1e-5)
    assert bound.numerical_error == pytest.approx(bound.epsilon - bound.details["epsilon_lower"])
    eta, drift = Curve.drift(COARSE._curve(steps), 1e-5)
    assert bound.numerical_error > drift
    back = COARSE.delta(steps, epsilon=bound.epsilon)
    assert back.numerical_error == pytest.approx(back.delta - back.details["delta_lower"])
    assert back.numerical_error > eta


def _two_sampled_steps(sigma: float, rate: float, epsilon: float) -> float:
    """Delta of two sampled steps by quadrature over the first, the second in closed form."""

    def loss(x: float) -> float:
        return math.log(1 - rate + rate * math.exp((2 * x - 1) / (2 * sigma**2)))

    def density(x: float) -> float:
        bells = (1 - rate) * math.exp(-((x / sigma) ** 2) / 2)
        bells += rate * math.exp(-(((x - 1) / sigma) ** 2) / 2)
        return bells / (sigma * math.sqrt(2 * math.pi))

    def one_step(left: float) -> float:
        if math.exp(left) <= 1 - rate:
            return 1 - math.exp(left)
        x = sigma**2 * math.log((math.exp(left) - 1 + rate) / rate) + 0.5
        with_record = (1 - rate) * ndtr(-x / sigma) + rate * ndtr((1 - x) / sigma)
        return float(with_record - math.exp(left) * ndtr(-x / sigma))

    value, _ = quad(
        lambda x: density(x) * one_step(epsilon - loss(x)),
        -12 * sigma,
        1 + 12 * sigma,
        limit=500,
        epsabs=1e-12,
    )
    return float(value)


@pytest.mark.parametrize("accountant", ["pld", "prv"])
@pytest.mark.parametrize(("sigma", "rate", "epsilon"), [(1.0, 0.2, 0.5), (0.8, 0.05, 1.0)])
def test_two_sampled_steps_by_quadrature(
    accountant: str, sigma: float, rate: float, epsilon: float
) -> None:
    bound = upper_bound(
        noise_multiplier=sigma,
        steps=2,
        sampling_rate=rate,
        epsilon=epsilon,
        accountant=accountant,
    )
    exact = _two_sampled_steps(sigma, rate, epsilon)
    assert bound.numerical_error is not None
    assert bound.delta - bound.numerical_error <= exact <= bound.delta
    if accountant == "pld":
        assert bound.delta == pytest.approx(exact, rel=1e-5)


def test_removing_is_the_worse_direction_of_one_step() -> None:
    # The claim of `exact_delta`, by summing both divergences on a fine grid.
    sigma, rate = 0.9, 0.3
    x = np.linspace(-12, 13, 400_001)
    without = np.exp(-((x / sigma) ** 2) / 2)
    with_record = (1 - rate) * without + rate * np.exp(-(((x - 1) / sigma) ** 2) / 2)
    scale = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    for epsilon in (0.0, 0.1, 0.5, 2.0):
        removing = scale * np.maximum(with_record - math.exp(epsilon) * without, 0).sum()
        adding = scale * np.maximum(without - math.exp(epsilon) * with_record, 0).sum()
        steps = NoisySteps(noise_multiplier=sigma, steps=1, sampling_rate=rate)
        assert exact_delta(steps, epsilon) == pytest.approx(removing, rel=1e-6)
        assert adding <= removing * (1 + 1e-6)


def test_prv_and_pld_brackets_overlap_after_many_steps() -> None:
    described = {"noise_multiplier": 0.8, "steps": 500, "sampling_rate": 0.02, "delta": 1e-6}
    pld = upper_bound(**described, accountant="pld")
    prv = upper_bound(**described, accountant="prv")
    assert pld.details["epsilon_lower"] <= prv.epsilon
    assert prv.details["epsilon_lower"] <= pld.epsilon
    assert pld.epsilon == pytest.approx(prv.details["epsilon_estimate"], abs=1e-3)


def test_delta_that_double_precision_cannot_resolve() -> None:
    steps = NoisySteps(noise_multiplier=1.0, steps=1000, sampling_rate=0.01)
    bound = COARSE.epsilon(steps, delta=1e-16)
    assert math.isinf(bound.epsilon)
    assert "below" in bound.notes[0]


def test_little_noise_stays_within_memory() -> None:
    steps = NoisySteps(noise_multiplier=0.01, steps=10, sampling_rate=0.1)
    bound = PldAccountant(points=2**16).epsilon(steps, delta=1e-5)
    assert bound.numerical_error is not None
    assert 0 < bound.epsilon - bound.numerical_error < bound.epsilon
    # No more than without sampling, no less than the steps' expected share of the loss.
    assert 10 * 0.1 * 5000 < bound.epsilon < gaussian_epsilon(1e-5, steps.mu)


class TestProfile:
    def test_is_the_bound_at_every_epsilon(self) -> None:
        epsilons = np.array([[3.0, 0.0], [0.7, 1.5]])
        described = {"noise_multiplier": 1.0, "steps": 20, "sampling_rate": 0.1}
        profile = privacy_profile(**described, epsilons=epsilons)
        assert profile.shape == epsilons.shape
        for epsilon, delta in zip(epsilons.flat, profile.flat, strict=True):
            assert upper_bound(**described, epsilon=epsilon).delta == pytest.approx(delta, rel=1e-9)

    def test_falls_and_is_convex_in_exp_epsilon(self) -> None:
        ratios = np.linspace(1.0, 20.0, 39)
        profile = privacy_profile(
            noise_multiplier=1.0, steps=20, sampling_rate=0.1, epsilons=np.log(ratios)
        )
        assert (np.diff(profile) < 0).all()
        assert (np.diff(profile, 2) > -1e-12).all()

    def test_closed_form_without_sampling(self) -> None:
        epsilons = [0.0, 10.0, 24.0]
        profile = privacy_profile(noise_multiplier=4.0, steps=250, epsilons=epsilons)
        pld = COARSE.deltas(NoisySteps(noise_multiplier=4.0, steps=250), np.array(epsilons))
        np.testing.assert_allclose(profile, pld, rtol=1e-5)
        assert (profile <= pld).all()

    def test_large_epsilons_do_not_overflow(self) -> None:
        steps = NoisySteps(noise_multiplier=0.1, steps=20, sampling_rate=0.5)
        deltas = PldAccountant(points=2**16).deltas(steps, np.array([900.0, 700.0, 1000.0]))
        assert 1 >= deltas[1] >= deltas[0] >= deltas[2] > 0

    def test_no_noise_gives_no_privacy(self) -> None:
        profile = privacy_profile(noise_multiplier=0.0, steps=1, epsilons=[0.0, 9.0])
        assert profile.tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("epsilons", [[-0.1], [math.nan], [math.inf]])
    def test_refuses_epsilons_out_of_range(self, epsilons: list[float]) -> None:
        with pytest.raises(InvalidInput, match="epsilons must be finite"):
            privacy_profile(noise_multiplier=1.0, steps=1, epsilons=epsilons)


def test_the_grid_is_as_fine_as_the_points_allow() -> None:
    """A coarse sketch gives the range of the losses; the numbers are those of 2026-11."""
    sampled = NoisySteps(noise_multiplier=1.0, steps=1000, sampling_rate=0.05)
    other = NoisySteps(noise_multiplier=2.0, steps=10, sampling_rate=0.05)
    for points, interval in ((2**10, 0.04991295524938), (2**12, 0.0092134932004), (2**20, 1e-4)):
        bound = PldAccountant(points=points).epsilon(sampled, delta=1e-5)
        assert bound.details["interval"] == pytest.approx(interval, rel=1e-9)
    few = NoisySteps(noise_multiplier=0.5, steps=10, sampling_rate=0.2)
    bound = PldAccountant(points=2**10).epsilon(few, delta=1e-5)
    assert bound.details["interval"] == pytest.approx(0.07352464649675, rel=1e-9)
    assert coarse_profile([sampled]).interval == pytest.approx(0.00055461324689, rel=1e-9)
    assert coarse_profile([sampled, other]).interval == 1e-3
    assert composed_range(sampled) == pytest.approx(200.1718281828459)
    assert composed_range(other) == pytest.approx(98.00057964370752)
    assert affordable(1.0, 1e-9, 4096) == affordable(1.0, 1.0, 2**20) == 25 / 2**12


def test_the_allowance_for_round_off_grows_with_the_number_of_steps() -> None:
    """At a million steps of together 1-GDP, 0.20 of it is needed, measured on a grid of 2**21."""

    class Known:
        @staticmethod
        def get_delta_for_epsilon(epsilon: float) -> float:
            return 0.25 if epsilon < math.inf else 0.0

    unit = np.finfo(float).eps
    one, many = (Curve.of(Known, steps=steps, interval=1e-4) for steps in (1, 400))
    assert (one.floor, many.floor) == (0.0, 400 * unit)
    assert one.delta(1.0) == 0.25 * (1 + unit / 1e-4)
    assert many.delta(1.0) == one.delta(1.0) + 400 * unit
