"""What the first trainings show, and what they could not show."""

import numpy as np
import pytest

from dpaudit import Claim, GradientCanary, audit
from dpaudit.trainings.probe import spread_contribution, spread_doubt
from dpaudit.trainings.run import Job
from dpaudit.trainings.scoring import Scorer

CLAIM = Claim.from_mu(1.0)
SHORT = GradientCanary.draw(12, clip_norm=1.0)


def noisy(canary, inserted, seed):
    noise = np.random.default_rng(seed).normal(size=canary.parameters)
    return -(canary.clipped_sum(inserted) + noise)


def once_only(train, times):
    """A training that fails when it is repeated with a seed that it has seen, so many times."""
    seeds, failures = set(), []

    def fails(canary, inserted, seed):
        if seed in seeds and len(failures) < times:
            failures.append(seed)
            raise RuntimeError("the file exists")
        seeds.add(seed)
        return train(canary, inserted, seed)

    return fails


@pytest.mark.parametrize(("times", "verdict"), [(0, "consistent"), (2, "consistent"), (99, None)])
def test_a_canary_that_could_not_be_checked_is_a_doubt(times, verdict):
    result = audit(once_only(noisy, times), canary=SHORT, claim=CLAIM, runs=300)
    assert result.failures == ()
    if verdict:
        assert result.verdict == verdict
    else:
        assert result.verdict == "inconclusive"
        assert "could not be checked" in result.sentence
        assert "the file exists" in result.sentence


def test_seeds_that_could_not_be_checked_are_a_doubt():
    calls = []

    def third_call_fails(canary, inserted, seed):
        calls.append(seed)
        if len(calls) == 3:
            raise RuntimeError("no memory")
        return noisy(canary, inserted, seed)

    result = audit(third_call_fails, canary=SHORT, claim=CLAIM, runs=300)
    assert result.failures == ()
    assert result.verdict == "inconclusive"
    assert "another seed" in result.sentence


# Gradients over all parameters.

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
        result = audit(trained(clipping), canary=CANARY, claim=claim, runs=250)
        assert result.verdict == verdict
