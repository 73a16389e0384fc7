"""Planted bugs are found, and correct but unusual trainings are not reported.

Version 0.1 passed most of these bugs and reported several of the correct trainings.
"""

import random

import numpy as np
import planted
import pytest
import torch

import dpaudit
from dpaudit.trainings import GradientCanary

CANARY = GradientCanary.draw(planted.SIZE, clip_norm=planted.CLIP, seed=4)


def broken(train, **settings):
    result = dpaudit.check_training(train, CANARY, noise_multiplier=planted.SIGMA, **settings)
    return {finding.rule.name for finding in result.broken}, result


@pytest.mark.parametrize("train", planted.CORRECT, ids=lambda train: train.__name__)
def test_correct_but_unusual_trainings_are_not_reported(train):
    names, result = broken(train)
    assert not names, result


@pytest.mark.parametrize(
    ("train", "expected"), planted.WRONG, ids=[train.__name__ for train, _ in planted.WRONG]
)
def test_planted_bugs_break_the_rule_that_describes_them(train, expected):
    names, result = broken(train)
    assert names == expected, result


@pytest.mark.parametrize("train", planted.CHOSEN, ids=lambda train: train.__name__)
def test_a_choice_during_training_is_not_reported(train):
    """It is private if public data decide, which a gradient does not show."""
    names, result = broken(train)
    assert not names, result


def test_the_tensor_without_noise_is_named():
    def train(canary, inserted, seed, steps=3):
        flat = planted.trained(planted.a_few_biases_without_noise)(canary, inserted, seed, steps)
        return {"embedding": flat[:577], "bias": flat[577:590], "head": flat[590:]}

    _, result = broken(train)
    assert "bias" in result["noise in every parameter"].explanation
    assert "embedding" not in result["noise in every parameter"].explanation


def test_the_tensor_left_out_of_the_norm_is_named():
    def train(canary, inserted, seed, steps=3):
        update = planted.first_tensor_left_out_of_the_norm
        flat = planted.trained(update)(canary, inserted, seed, steps)
        return {"embedding": flat[:60], "body": flat[60:]}

    _, result = broken(train)
    assert "embedding" in result["bounded contribution"].explanation


def test_a_declared_public_transform_leaves_rules_out_without_an_alarm():
    names, result = broken(planted.trained(planted.top_k_after_noise), public_transform=True)
    assert not names
    assert "declared" in result["noise size"].explanation


def test_noise_that_is_the_same_in_every_step_is_not_called_wasteful():
    """A training without ``steps``: version 0.1 said "Wasteful, not a leak"."""

    def train(canary, inserted, seed):
        return planted.trained(planted.cached(1))(canary, inserted, seed, 8)

    _, result = broken(train, steps=8)
    assert result["noise size"].verdict == "not tested"
    assert "leak" in result["noise size"].explanation


def test_global_generators_are_restored():
    legacy = np.random.get_state
    states = random.getstate(), legacy()[1].copy(), torch.get_rng_state()
    broken(planted.global_generator)
    assert random.getstate() == states[0]
    assert (legacy()[1] == states[1]).all()
    assert torch.equal(torch.get_rng_state(), states[2])
