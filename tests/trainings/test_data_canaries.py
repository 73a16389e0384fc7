"""Data points as canaries: long, unlike all others, and found by an audit."""

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import InvalidInput
from dpaudit.trainings import hard_example, rare_feature

RANDOM = np.random.default_rng(0)
LABELS = np.repeat([0, 1], [60, 40])
FEATURES = RANDOM.normal(size=(100, 6)) + 3 * LABELS[:, None]
FEATURES[:, 4] = 0.0
FEATURES[3, 4] = 1.0


def test_a_hard_example_is_typical_of_one_class_and_has_the_label_of_another():
    point, label = hard_example(FEATURES, LABELS)
    assert label == 1
    place = np.flatnonzero((point == FEATURES).all(axis=1))
    assert LABELS[place].tolist() == [0]


def test_a_rare_feature_is_the_one_that_others_lack():
    point, label = rare_feature(FEATURES, LABELS, size=5.0)
    assert np.flatnonzero(point).tolist() == [4]
    typical = np.median(np.linalg.norm(FEATURES, axis=1))
    assert np.linalg.norm(point) == pytest.approx(5 * typical)
    assert label == 1


@pytest.mark.parametrize("make", [hard_example, rare_feature])
def test_the_noiseless_training_is_found_with_the_point(make):
    """Logistic regression with clipping, and a tenth of the claimed noise."""
    point, label = make(FEATURES, LABELS)

    def train(canary, inserted, seed):
        random, theta = np.random.default_rng(seed), np.zeros(6)
        x = np.vstack([FEATURES, canary[0]]) if inserted else FEATURES
        y = np.append(LABELS, canary[1]) if inserted else LABELS
        for _ in range(5):
            rows = (1 / (1 + np.exp(-x @ theta)) - y)[:, None] * x
            rows *= np.minimum(1, 1 / np.linalg.norm(rows, axis=1, keepdims=True))
            theta -= 0.1 * (rows.sum(axis=0) + random.normal(0, 0.05, 6))
        logit = float(canary[0] @ theta)
        return dpaudit.Predictions(logits=[0.0, logit], target=int(canary[1]))

    result = dpaudit.audit_training(
        train, canary=(point, label), claim=dpaudit.Claim.from_mu(0.5), runs=60
    )
    assert result.verdict == "violation"


def test_mistakes_are_named():
    with pytest.raises(InvalidInput, match="labels"):
        hard_example(FEATURES, LABELS[:-1])
    with pytest.raises(InvalidInput, match="2 classes"):
        hard_example(FEATURES, np.zeros(100))
    with pytest.raises(InvalidInput, match="features"):
        rare_feature(np.zeros(3), [0])
