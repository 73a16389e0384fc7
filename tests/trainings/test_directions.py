"""Canaries in random directions and in every tensor find what one axis does not."""

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import InvalidInput
from dpaudit.trainings.directions import DirectionCanary, by_tensor, one_per_tensor

CLIP, SIGMA, STEPS = 1.0, 2.0, 4
CLAIM = dpaudit.Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS)


def train_with(clip, noise):
    def train(canary, inserted, seed):
        random, theta = np.random.default_rng(seed), np.zeros(canary.parameters)
        for _ in range(STEPS):
            theta -= clip(canary.rows(inserted)).sum(axis=0) + noise(random, len(theta))
        return theta

    return train


def by_norm(rows):
    return rows * np.minimum(1, CLIP / np.linalg.norm(rows, axis=1, keepdims=True))


def by_largest_entry(rows):
    return rows * np.minimum(1, CLIP / np.abs(rows).max(axis=1, keepdims=True, initial=1e-9))


def everywhere(random, size):
    return random.normal(0, SIGMA * CLIP, size)


def not_in_the_bias(random, size):
    noise = everywhere(random, size)
    noise[-3:] = 0.0
    return noise


@pytest.mark.parametrize(("clip", "violated"), [(by_largest_entry, True), (by_norm, False)])
def test_clipping_by_the_largest_entry_shows_in_a_random_direction(clip, violated):
    audits = {
        kind: dpaudit.audit_training(
            train_with(clip, everywhere),
            canary=kind.draw(400, clip_norm=CLIP),
            claim=CLAIM,
            runs=60,
        ).verdict
        for kind in (DirectionCanary, dpaudit.GradientCanary)
    }
    assert (audits[DirectionCanary] == "violation") == violated
    assert audits[dpaudit.GradientCanary] != "violation"


def test_the_tensor_without_noise_is_named():
    canary, names = one_per_tensor({"weight": 40, "head": 10, "bias": 3}, clip_norm=CLIP)
    audit = dpaudit.audit_training(
        train_with(by_norm, not_in_the_bias), canary=canary, claim=CLAIM, runs=80
    )
    tests = by_tensor(audit.scores, names, CLAIM)
    assert [name for name, test in tests.items() if test.verdict == "violation"] == ["bias"]


def test_correct_trainings_are_not_reported_by_any_tensor():
    canary, names = one_per_tensor({f"tensor {i}": 5 for i in range(10)}, clip_norm=CLIP)
    for seed in range(5):
        audit = dpaudit.audit_training(
            train_with(by_norm, everywhere), canary=canary, claim=CLAIM, runs=40, seed=seed
        )
        tests = by_tensor(audit.scores, names, CLAIM)
        assert all(test.verdict != "violation" for test in tests.values())


def test_directions_are_orthonormal_and_mistakes_are_named():
    canary = DirectionCanary.draw(30, clip_norm=2.0, count=4, seed=3)
    np.testing.assert_allclose(canary.directions @ canary.directions.T, np.eye(4), atol=1e-12)
    assert np.linalg.norm(canary.rows([True, False, False, False])) == pytest.approx(20.0)
    with pytest.raises(InvalidInput, match="count must be at most"):
        DirectionCanary.draw(3, clip_norm=1.0, count=4)
    with pytest.raises(InvalidInput, match="at least one tensor"):
        one_per_tensor({}, clip_norm=1.0)
    with pytest.raises(InvalidInput, match="shape"):
        canary.score(np.zeros(3))
