"""Models with few parameters: the shape of their noise is measured with further seeds."""

import numpy as np
import pytest
from scipy import stats

from dpaudit import GradientCanary
from dpaudit.checks import check_training

SIZE, SIGMA = 60, 2.0
CANARY = GradientCanary.draw(SIZE, clip_norm=1.0, seed=1)


def clipped(rows):
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0) + 1e-300
    norms = largest * np.linalg.norm(rows / largest, axis=1, keepdims=True)
    return (rows * np.minimum(1, 1 / np.maximum(norms, 1e-300))).sum(axis=0)


def sgd(theta, gradient, state):
    return theta - 0.1 * gradient


def rmsprop(theta, gradient, state):
    state["square"] = 0.9 * state.get("square", 0.0) + 0.1 * gradient**2
    return theta - 0.1 * gradient / (np.sqrt(state["square"]) + 1e-6)


def train_with(noise, update=sgd):
    def train(canary, inserted, seed, steps=5):
        random, theta, state = np.random.default_rng(seed), np.linspace(0.1, 0.7, SIZE) ** 2, {}
        for _ in range(steps):
            theta = update(theta, clipped(canary.rows(inserted)) + noise(random), state)
        return theta

    return train


def gaussian(random):
    return random.normal(0, SIGMA, SIZE)


def laplace(random):
    return random.laplace(0, SIGMA / np.sqrt(2), SIZE)


def plus_or_minus(random):
    return SIGMA * random.choice([-1.0, 1.0], SIZE)


def whole_numbers(random):
    return np.round(random.normal(0, SIGMA, SIZE))


def best_of_two(random):
    """Noise is smaller by a few per cent, and more so the fewer parameters there are."""
    return min(random.normal(0, SIGMA, (2, SIZE)), key=np.linalg.norm)


def truncated(limit):
    """Noise of the claimed variance that never exceeds some standard deviations."""

    def bounded_noise(random):
        drawn = stats.truncnorm.rvs(-limit, limit, size=SIZE, random_state=random)
        return SIGMA * drawn / stats.truncnorm.std(-limit, limit)

    return bounded_noise


@pytest.mark.parametrize(
    "noise", [laplace, plus_or_minus, whole_numbers, truncated(2.0), truncated(2.5)]
)
def test_noise_of_another_shape_is_found(noise):
    result = check_training(train_with(noise), CANARY, noise_multiplier=SIGMA)
    assert [found.rule.name for found in result.broken] == ["Gaussian noise"]


def test_the_better_of_two_draws_is_too_little_noise():
    result = check_training(train_with(best_of_two), CANARY, noise_multiplier=SIGMA)
    assert [found.rule.name for found in result.broken] == ["noise size"]


def test_gaussian_noise_passes():
    result = check_training(train_with(gaussian), CANARY, noise_multiplier=SIGMA)
    assert result["Gaussian noise"].verdict == "passed"
    assert result.passed


def test_an_adaptive_optimizer_is_not_called_broken():
    result = check_training(train_with(gaussian, rmsprop), CANARY, noise_multiplier=SIGMA)
    assert not result.broken
