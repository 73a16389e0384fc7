"""Clients with unequal weights: the bound is that of the heaviest one."""

import numpy as np
import pytest

from dpaudit.checks import check_step
from dpaudit.errors import InvalidInput

WEIGHTS = [1.0] * 7 + [7.0]


def weighted(gradients, seed, weights, *, heaviest):
    """A weighted sum of clipped updates, with noise for a given largest weight."""
    gradients = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
    largest = np.abs(gradients).max(axis=1, keepdims=True) + 1e-300
    norms = np.linalg.norm(gradients / largest, axis=1, keepdims=True) * largest
    clipped = gradients * np.minimum(1, 1 / np.maximum(norms, 1e-300))
    noise = np.random.default_rng(seed).normal(0, 1.1 * heaviest, gradients.shape[1])
    return (weights @ clipped + noise) / sum(WEIGHTS)


def check(heaviest, weights=WEIGHTS):
    return check_step(
        lambda gradients, seed, weights: weighted(gradients, seed, weights, heaviest=heaviest),
        clip_norm=1.0,
        noise_multiplier=1.1,
        parameters=200,
        batch_size=8,
        weights=weights,
    )


def test_noise_for_the_heaviest_client_passes():
    assert check(7.0).passed


@pytest.mark.parametrize("heaviest", [1.0, 14 / 8])
def test_noise_for_the_average_client_is_too_small(heaviest):
    """As in Flower's fixed clipping, which weights clients by their examples."""
    broken = {finding.rule.name for finding in check(heaviest).broken}
    assert broken & {"noise size", "bounded contribution"}


@pytest.mark.parametrize("weights", [[1.0] * 7, [0.0] * 8, [np.nan] * 8])
def test_weights_that_do_not_fit(weights):
    with pytest.raises(InvalidInput, match="weights must be 8 positive numbers"):
        check(7.0, weights)
