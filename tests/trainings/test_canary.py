"""Canaries in random directions, in every tensor, and data points as canaries."""

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import InvalidInput
from dpaudit.trainings import DirectionCanary, hard_example, rare_feature

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
    return rows * np.minimum(1, CLIP / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12))


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
        kind: dpaudit.audit(
            train_with(clip, everywhere),
            canary=kind.draw(400, clip_norm=CLIP),
            claim=CLAIM,
            runs=60,
        ).verdict
        for kind in (DirectionCanary, dpaudit.GradientCanary)
    }
    assert (audits[DirectionCanary] == "violation") == violated
    assert audits[dpaudit.GradientCanary] != "violation"


def by_tensor(rows):
    return np.hstack([by_norm(part) for part in np.split(rows, 4, axis=1)])


def automatically(rows):
    return CLIP * rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 0.01)


@pytest.mark.parametrize("canary", ["draw", "per_tensor"])
@pytest.mark.parametrize(
    ("clip", "correct"),
    [(by_norm, True), (automatically, True), (by_tensor, False), (by_largest_entry, False)],
)
def test_axis_canaries_call_no_training_consistent_that_clips_parts(clip, correct, canary):
    """Scores along axes look right; a gradient over all parameters shows that they are not."""
    kind = dpaudit.GradientCanary
    made = (
        kind.draw(80, clip_norm=CLIP)
        if canary == "draw"
        else kind.per_tensor({"one": 20, "two": 60}, clip_norm=CLIP)
    )
    audit = dpaudit.audit(train_with(clip, everywhere), canary=made, claim=CLAIM, runs=200, seed=1)
    assert audit.verdict == ("consistent" if correct else "inconclusive")
    assert any("DirectionCanary" in doubt for doubt in audit.final.doubts) != correct


def test_what_an_axis_cannot_show_is_said():
    """A training that takes only canaries along axes cannot be shown another gradient."""

    def train(canary, inserted, seed):
        theta = train_with(by_tensor, everywhere)(canary, inserted, seed)
        return theta if len(canary.dimensions) else None

    canary = dpaudit.GradientCanary.draw(80, clip_norm=CLIP)
    audit = dpaudit.audit(train, canary=canary, claim=CLAIM, runs=200)
    assert audit.verdict == "consistent"
    assert "not tested" in audit.sentence
    assert "not tested" in audit.to_dict()["covers"]


TENSORS = {"weight": 40, "head": 10, "bias": 3}


def left_out_of_the_norm(rows):
    norms = np.linalg.norm(rows[:, :-3], axis=1, keepdims=True)
    return rows * np.minimum(1, CLIP / np.maximum(norms, 1e-12))


@pytest.mark.parametrize("kind", [dpaudit.GradientCanary, DirectionCanary])
@pytest.mark.parametrize("until_violation", [False, True])
@pytest.mark.parametrize(
    ("clip", "noise"), [(by_norm, not_in_the_bias), (left_out_of_the_norm, everywhere)]
)
def test_the_tensor_of_a_violation_is_named(kind, until_violation, clip, noise):
    result = dpaudit.audit(
        train_with(clip, noise),
        canary=kind.per_tensor(TENSORS, clip_norm=CLIP),
        claim=CLAIM,
        runs=80,
        until_violation=until_violation,
    )
    assert result.verdict == "violation"
    plain = result.to_dict()["tensors"]
    assert plain["bias"]["verdict"] == "violation"
    assert {plain[name]["verdict"] for name in ("weight", "head")} <= {"consistent", "inconclusive"}
    assert "bias" in result.sentence
    assert "weight" not in result.sentence
    assert "bias" in result.summary()
    facts = {facts.heading: dict(facts.rows) for facts in result.page().facts}
    assert facts["test of each tensor"]["bias"].startswith("violation")


def test_correct_trainings_are_not_reported_by_any_tensor():
    canary = dpaudit.GradientCanary.per_tensor(
        {f"tensor {i}": 5 for i in range(10)}, clip_norm=CLIP
    )
    for seed in range(5):
        result = dpaudit.audit(
            train_with(by_norm, everywhere), canary=canary, claim=CLAIM, runs=40, seed=seed
        )
        assert all(test.verdict != "violation" for test in result.final.tensors.values())


def test_the_power_is_that_of_the_weakest_tensor():
    def train(canary, inserted, seed):
        theta = train_with(by_norm, everywhere)(canary, inserted, seed)
        noise = np.random.default_rng([seed, 1]).normal(0, 100.0, 3)  # drowns the canary
        return np.concatenate([theta[:-3], theta[-3:] + noise])

    canary = dpaudit.GradientCanary.per_tensor(TENSORS, clip_norm=CLIP)
    result = dpaudit.audit(train, canary=canary, claim=CLAIM, runs=300)
    assert result.final.power.canary == "bias"
    assert result.verdict == "inconclusive"


def test_directions_are_orthonormal_and_mistakes_are_named():
    canary = DirectionCanary.draw(30, clip_norm=2.0, count=4, seed=3)
    np.testing.assert_allclose(canary.directions @ canary.directions.T, np.eye(4), atol=1e-12)
    assert np.linalg.norm(canary.rows([True, False, False, False])) == pytest.approx(20.0)
    with pytest.raises(InvalidInput, match="count must be at most"):
        DirectionCanary.draw(3, clip_norm=1.0, count=4)
    with pytest.raises(InvalidInput, match="at least one tensor"):
        dpaudit.GradientCanary.per_tensor({}, clip_norm=1.0)
    with pytest.raises(InvalidInput, match="shape"):
        canary.score(np.zeros(3))


# Data points.

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

    result = dpaudit.audit(train, canary=(point, label), claim=dpaudit.Claim.from_mu(0.5), runs=60)
    assert result.verdict == "violation"


def test_mistakes_are_named():
    with pytest.raises(InvalidInput, match="labels"):
        hard_example(FEATURES, LABELS[:-1])
    with pytest.raises(InvalidInput, match="2 classes"):
        hard_example(FEATURES, np.zeros(100))
    with pytest.raises(InvalidInput, match="features"):
        rare_feature(np.zeros(3), [0])
