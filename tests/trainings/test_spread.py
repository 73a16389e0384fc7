"""Before an audit with canaries along axes, gradients over all parameters are clipped to C."""

import numpy as np
import pytest

from dpaudit import Claim, GradientCanary, audit_training
from dpaudit.trainings.probe import spread_contribution, spread_doubt
from dpaudit.trainings.run import Job
from dpaudit.trainings.scoring import Scorer

CLIP, SIGMA, SIZE = 0.1, 1.0, 40
CANARY = GradientCanary.draw(SIZE, clip_norm=CLIP)


def norms(rows):
    return np.linalg.norm(rows, axis=1, keepdims=True) + 1e-300


def clipped(rows):
    return rows * np.minimum(1, CLIP / norms(rows))


def per_tensor(rows):
    return np.hstack([clipped(part) for part in np.split(rows, 8, axis=1)])


def by_the_squared_norm(rows):
    """A gradient of norm 10 C contributes exactly C, a shorter one more than three times C."""
    return rows * np.minimum(1, CLIP / norms(rows) ** 2)


def skipped_if_long(rows):
    return clipped(rows) * (norms(rows.sum(axis=0, keepdims=True)) < 50 * CLIP)


def shrinking(rows):
    """Automatic clipping contributes at most C, and never more than short gradients suggest."""
    return CLIP * rows / (norms(rows) + 0.5 * CLIP)


def softly(rows):
    """A gradient of norm C contributes C / 2, and no gradient contributes more than C."""
    return CLIP * rows / (norms(rows) + CLIP)


def trained(clipping):
    def train(canary, inserted, seed):
        others = np.random.default_rng(0).normal(0, CLIP / 3, (5, SIZE))
        total = clipping(np.vstack([others, canary.rows(inserted)])).sum(axis=0)
        return -(total + np.random.default_rng(seed).normal(0, SIGMA * CLIP, SIZE))

    return train


def contribution(train):
    return spread_contribution(Job(train=train, scorer=Scorer(canary=CANARY), seed=0), run=0)


@pytest.mark.parametrize("clipping", [clipped, shrinking, softly])
def test_a_clipped_gradient_leaves_no_doubt(clipping):
    seen = contribution(trained(clipping))
    assert 0 < seen < 1.3
    assert not spread_doubt(seen)


@pytest.mark.parametrize(
    ("clipping", "expected"),
    [(per_tensor, (2.5, 3.0)), (by_the_squared_norm, (2.0, 3.2)), (skipped_if_long, (-30, -0.3))],
)
def test_another_contribution_is_a_doubt(clipping, expected):
    seen = contribution(trained(clipping))
    assert expected[0] < seen < expected[1]
    assert spread_doubt(seen)


def test_a_training_with_a_doubt_is_not_called_consistent():
    claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=1)
    for clipping, verdict in ((by_the_squared_norm, "inconclusive"), (clipped, "consistent")):
        result = audit_training(trained(clipping), canary=CANARY, claim=claim, runs=250)
        assert result.verdict == verdict
