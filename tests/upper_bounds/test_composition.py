"""Parts of a training compose: never below the truth, and no looser than rounding explains."""

import math

import numpy as np
import pytest

from dpaudit.curves import gaussian_delta
from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds import NoisySteps, composed_profile, privacy_profile

EPSILONS = np.array([0.0, 0.25, 1.0, 2.0, 4.0])


def part(noise, steps, rate=None):
    return NoisySteps(noise_multiplier=noise, steps=steps, sampling_rate=rate)


def test_steps_without_sampling_compose_in_closed_form():
    deltas = composed_profile([part(2.0, 3), part(5.0, 10), part(2.0, 1)], epsilons=EPSILONS)
    exact = gaussian_delta(EPSILONS, math.sqrt(4 / 4 + 10 / 25))
    np.testing.assert_allclose(deltas, exact, rtol=1e-12)


def test_equal_parts_are_one_part():
    deltas = composed_profile([part(1.0, 60, 0.01), part(1.0, 40, 0.01)], epsilons=EPSILONS)
    whole = privacy_profile(noise_multiplier=1.0, steps=100, sampling_rate=0.01, epsilons=EPSILONS)
    np.testing.assert_array_equal(deltas, whole)


def test_nearly_equal_parts_are_nearly_one_part_and_never_below_it():
    finer = privacy_profile(
        noise_multiplier=1.0 + 1e-9, steps=100, sampling_rate=0.01, epsilons=EPSILONS
    )
    deltas = composed_profile([part(1.0, 60, 0.01), part(1.0 + 1e-9, 40, 0.01)], epsilons=EPSILONS)
    told_apart_from_roundoff = finer > 1e-12
    assert (deltas >= finer * (1 - 1e-6))[told_apart_from_roundoff].all()
    np.testing.assert_allclose(deltas, finer, rtol=0.02, atol=1e-12)


def test_sampled_and_unsampled_steps_together():
    # A rate of nearly 1 is nearly no sampling, where the truth is a closed form.
    deltas = composed_profile([part(4.0, 5, 1 - 1e-9), part(2.0, 3)], epsilons=EPSILONS)
    exact = gaussian_delta(EPSILONS, math.sqrt(5 / 16 + 3 / 4))
    assert (deltas >= exact * (1 - 1e-6)).all()
    np.testing.assert_allclose(deltas, exact, rtol=5e-3)


def test_no_noise_in_one_part_gives_no_privacy():
    deltas = composed_profile([part(1.0, 3, 0.1), part(0.0, 1, 0.1)], epsilons=EPSILONS)
    assert (deltas == 1).all()
    assert (composed_profile([part(1.0, 3), part(0.0, 1)], epsilons=EPSILONS) == 1).all()


@pytest.mark.parametrize(
    ("parts", "epsilons", "message"),
    [
        ([], [1.0], "at least one step"),
        ([part(1.0, 1, 0.1), part(2.0, 1, 0.1)], [-1.0], "at least 0"),
    ],
)
def test_refusals(parts, epsilons, message):
    with pytest.raises(InvalidInput, match=message):
        composed_profile(parts, epsilons=epsilons)
