"""Correct trainings in extreme settings: no false alarm from rounding, momentum or reactions."""

import numpy as np
import private_steps as steps
import pytest

import dpaudit
from dpaudit.trainings import GradientCanary


def drawn(seed):
    """A correct training with settings from far inside to far outside of what is sensible."""
    random = np.random.default_rng(seed)
    size = int(random.choice([10, 50, 300]))
    examples = int(random.choice([1, 8, 64]))
    clip, sigma = 10.0 ** random.uniform(-3, 2), 10.0 ** random.uniform(-0.7, 1.2)
    rate, momentum = 10.0 ** random.uniform(-6, 1), random.choice([0.0, 0.9])
    kind = random.choice([np.float32, np.float64])
    moved, several = random.random() < 0.5, random.random() < 0.5
    start = random.normal(size=size) * 10.0 ** random.uniform(-2, 0.5)
    features = random.normal(size=(examples, size)) / np.sqrt(size)
    slope = clip * 10.0 ** random.uniform(-1, 1)

    def train(canary, inserted, seed, steps_):
        noise, theta, velocity = np.random.default_rng(seed), start.astype(kind), 0.0
        for _ in range(steps_):
            own = slope * (features @ theta - 1.0)[:, None] * features
            rows = np.vstack([own, canary.rows(inserted)])
            total = steps.clipped(rows, clip).sum(axis=0) + noise.normal(0, sigma * clip, size)
            velocity = momentum * velocity + total
            theta = (theta - rate / examples * velocity).astype(kind)
        return theta - start.astype(kind) if moved else theta

    def five_steps(canary, inserted, seed):
        return train(canary, inserted, seed, 5)

    def any_steps(canary, inserted, seed, steps=1):
        return train(canary, inserted, seed, steps)

    canary = GradientCanary.draw(size, clip_norm=clip, seed=seed)
    return (five_steps, canary, sigma, 5) if several else (any_steps, canary, sigma, 1)


@pytest.mark.parametrize("first", range(0, 30, 15))
def test_no_correct_training_is_called_broken_or_over_noised(first):
    for seed in range(first, first + 15):
        train, canary, sigma, count = drawn(seed)
        result = dpaudit.check_training(train, canary, noise_multiplier=sigma, steps=count)
        verdicts = {finding.verdict for finding in result}
        assert verdicts <= {"passed", "not tested"}, (seed, result)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("clip", [0.01, 1.0, 100.0])
def test_in_float64_one_step_decides_every_rule(sigma, clip):

    def train(canary, inserted, seed):
        rows = np.vstack([np.eye(4, 200), canary.rows(inserted)])
        noise = np.random.default_rng(seed).normal(0, sigma * clip, 200)
        return 0.7 - 0.1 * (steps.clipped(rows, clip).sum(axis=0) + noise)

    canary = GradientCanary.draw(200, clip_norm=clip)
    result = dpaudit.check_training(train, canary, noise_multiplier=sigma)
    unknown = {finding.rule.name for finding in result if finding.verdict != "passed"}
    assert unknown == {
        "contribution to its own step only",
        "noise in every step",
    }
