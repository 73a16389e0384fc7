"""The propagated densities against closed forms, down to the tails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from processes import landscape_process
from scipy.special import log_ndtr

from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import NumericalError
from dpaudit_paper.landscapes import (
    Constant,
    Landscape,
    LandscapeProcess,
    Resolution,
    Threshold,
    densities,
    propagation,
    wells,
)
from dpaudit_paper.landscapes.pair import DensityPair


def _last(process: LandscapeProcess) -> DensityPair:
    *_, last = densities(process)
    return last


def _two_steps_over_a_threshold(
    y: np.ndarray, mean: float, sigma: float, noise: float, at: float, reach: float
) -> np.ndarray:
    """The logarithm of p_2 in closed form: each half of a normal, moved and blurred.

    The product of two normal densities is a normal density in x, so each half line contributes the
    density of the sum times a normal distribution function.
    """
    total = math.hypot(sigma, noise)
    parts = []
    for side in (1.0, -1.0):
        shifted = y - side * reach
        posterior = (mean * noise**2 + shifted * sigma**2) / total**2
        spread = sigma * noise / total
        marginal = -0.5 * ((shifted - mean) / total) ** 2 - math.log(total * math.sqrt(2 * math.pi))
        parts.append(marginal + log_ndtr(side * (posterior - at) / spread))
    return np.logaddexp(*parts)


@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
@pytest.mark.parametrize("batch", [1, 8])
def test_two_steps_over_a_threshold_are_a_closed_form_far_into_the_tails(
    scaling: str, batch: int
) -> None:
    process = landscape_process(Threshold(at=0.7), sigma=2.0, batch=batch, steps=2, scaling=scaling)
    last = _last(process)
    y = last.panels.nodes.ravel()
    for mean, density in ((0.0, last.without), (1.0, last.canary)):
        exact = _two_steps_over_a_threshold(y, mean, 2.0, process.step_noise, 0.7, process.reach)
        # Down to e^-34 = 2e-15, ten orders below delta, as a relative error.
        seen = exact > -34
        assert np.abs(np.log(density.ravel()[seen]) - exact[seen]).max() < 1e-7
        assert seen.mean() > 0.5


@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
@pytest.mark.parametrize(("sigma", "batch"), [(1.0, 1), (4.0, 2), (1.0, 16)])
def test_a_constant_landscape_equals_the_closed_form(
    scaling: str, sigma: float, batch: int
) -> None:
    process = landscape_process(Constant(), sigma=sigma, batch=batch, scaling=scaling)
    for step, pair in enumerate(densities(process), start=1):
        ratio = 1 / batch if scaling == "paper" else 1.0
        mu = 1 / (sigma * math.sqrt(1 + ratio**2 * (step - 1)))
        assert pair.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, mu), abs=1e-8)
        assert pair.gdp_rule_mu() == pytest.approx(mu, abs=1e-6)


def test_later_insertions_of_a_constant_landscape_add_up() -> None:
    process = landscape_process(Constant(), sigma=4.0, steps=13, period=3, scaling="dpsgd")
    last = _last(process)
    # Insertions at steps 1, 4, 7, 10, 13.
    assert last.gdp_rule_mu() == pytest.approx(5 / (4 * math.sqrt(13)), abs=1e-6)


@pytest.mark.parametrize(
    "landscape",
    [
        Threshold(),
        Threshold(away=False),
        wells(3.0),
        wells(0.4),
    ],
    ids=lambda shape: type(shape).__name__,
)
@pytest.mark.parametrize("scaling", ["paper", "dpsgd"])
def test_mass_is_conserved_to_1e_12(landscape: Landscape, scaling: str) -> None:
    for pair in densities(landscape_process(landscape, scaling=scaling, steps=60)):
        for density in (pair.without, pair.canary):
            assert abs(pair.panels.masses(density).sum() - 1) < 1e-12


def test_tails_reach_far_beyond_what_delta_needs() -> None:
    last = _last(landscape_process(steps=5))
    mass = last.panels.masses(last.canary)
    assert mass[mass > 0].min() < 1e-15
    # And at a tiny delta there is still something to find.
    assert last.epsilon(1e-12) > last.epsilon(1e-5) + 1


def test_results_do_not_depend_on_the_grid() -> None:
    process = landscape_process(wells(1.3), steps=10)
    rough = [p.epsilon(1e-5) for p in densities(process, resolution=Resolution(order=9))]
    fine = Resolution(order=12, width=0.7, negligible=1e-14)
    smooth = [p.epsilon(1e-5) for p in densities(process, resolution=fine)]
    np.testing.assert_allclose(rough, smooth, rtol=1e-6)


def test_a_grid_too_coarse_for_its_tolerance_is_refused() -> None:
    with pytest.raises(NumericalError, match="mass drifted"):
        list(densities(landscape_process(), resolution=Resolution(order=4, width=4.0)))


def test_noise_too_small_for_floating_point_is_refused() -> None:
    with pytest.raises(NumericalError, match="raise the noise multiplier or delta"):
        next(densities(landscape_process(sigma=0.01)))
    with pytest.raises(NumericalError, match="raise the noise multiplier or delta"):
        next(densities(landscape_process(), delta=1e-300))
    # Just inside: mu = 20 at a common delta, with the epsilon of the Gaussian mechanism.
    first = next(densities(landscape_process(sigma=0.05)))
    assert first.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, 20.0), rel=1e-9)


def test_a_grid_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "MOST_PANELS", 300)
    with pytest.raises(NumericalError, match="panels"):
        list(densities(landscape_process(batch=10**4, steps=3)))


def test_a_huge_reach_needs_no_more_panels_in_dpsgd_scaling() -> None:
    near = _last(landscape_process(batch=16, scaling="dpsgd"))
    far = _last(landscape_process(batch=10**6, scaling="dpsgd"))
    assert far.epsilon(1e-5) == pytest.approx(near.epsilon(1e-5), abs=1e-6)
