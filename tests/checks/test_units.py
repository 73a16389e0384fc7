"""Clients with unequal weights, users with several records, and clip norms that adapt."""

import numpy as np
import private_steps as steps
import pytest

from dpaudit import GradientCanary, check_training
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


def check(heaviest, weights=WEIGHTS, **options):
    return check_step(
        lambda gradients, seed, weights: weighted(gradients, seed, weights, heaviest=heaviest),
        clip_norm=1.0,
        noise_multiplier=1.1,
        parameters=200,
        batch_size=8,
        weights=weights,
        **options,
    )


def test_noise_for_the_heaviest_client_passes():
    assert check(7.0, divisor=14).passed


@pytest.mark.parametrize("heaviest", [1.0, 14 / 8])
def test_noise_for_the_average_client_is_too_small(heaviest):
    """As in Flower's fixed clipping, which weights clients by their examples."""
    broken = {finding.rule.name for finding in check(heaviest).broken}
    assert broken & {"noise size", "bounded contribution"}


@pytest.mark.parametrize("weights", [[1.0] * 7, [0.0] * 8, [np.nan] * 8])
def test_weights_that_do_not_fit(weights):
    with pytest.raises(InvalidInput, match="weights must be 8 positive numbers"):
        check(7.0, weights)


@pytest.mark.parametrize(
    ("options", "total"),
    [({"weights": WEIGHTS, "divisor": 8}, "14, got 8"), ({"divisor": 7.0}, "8, got 7.0")],
)
def test_weights_that_do_not_sum_to_the_divisor_are_refused_before_the_step(options, total):
    def never(gradients, seed, weights=None):
        raise AssertionError(gradients, seed, weights)

    settings = {"clip_norm": 1.0, "noise_multiplier": 1.1, "batch_size": 8}
    with pytest.raises(InvalidInput, match=f"divisor must be the sum of the weights, {total}"):
        check_step(never, **settings, **options)


# --- Users with several records. ------------------------------------------------------------------


def test_a_step_that_clips_every_record_of_a_user_by_itself():
    settings = {"clip_norm": steps.CLIP, "noise_multiplier": steps.SIGMA, "batch_size": 16}
    result = check_step(steps.correct, records=4, unit="user", **settings)
    assert [finding.rule.name for finding in result.broken] == ["bounded contribution"]
    assert "Each of the 4 records" in result["bounded contribution"].explanation
    assert "a user with 4 records" in result.note
    assert check_step(steps.correct, records=1, unit="user", **settings).passed


@pytest.mark.parametrize("together", [True, False])
def test_a_training_that_clips_the_records_of_a_user_together(together):
    def train(canary, inserted, seed, steps_=1):
        random, theta = np.random.default_rng(seed), np.full(300, 0.3)
        for _ in range(steps_):
            rows = canary.rows(inserted)
            if together and len(rows):  # the user is the only one
                rows = rows.sum(axis=0, keepdims=True)
            theta -= 0.1 * (steps.clipped(rows, 1.0).sum(axis=0) + random.normal(0, 1.1, 300))
        return theta

    canary = GradientCanary.draw(300, clip_norm=1.0, records=4, unit="user")
    result = check_training(train, canary, noise_multiplier=1.1)
    assert {finding.rule.name for finding in result.broken} == (
        set() if together else {"bounded contribution"}
    )


# --- Several rounds with a state. -----------------------------------------------------------------


def adaptive(*, noise_of, count_deviation=4.0):
    """Rounds whose clip norm follows a noisy count (Andrew et al. 2021)."""

    def private_step(batches, seed):
        random, norm, released = np.random.default_rng(seed), 1.0, []
        for rows in batches:
            total = steps.clipped(rows, norm).sum(axis=0)
            short = (steps.norms_of(np.nan_to_num(rows)) <= norm).sum() if len(rows) else 0
            share = (short + random.normal(0, count_deviation)) / 16
            following = norm * np.exp(-0.5 * (share - 0.9))  # grows until most are not clipped
            norms = {"own": norm, "first": 1.0, "following": following}
            released.append(total + random.normal(0, 1.1 * norms[noise_of], rows.shape[1]))
            norm = following
        return released

    return private_step


def broken_in_rounds(step, **options):
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.1, "parameters": 500, "rounds": 6}
    result = check_step(step, **(settings | options))
    return {finding.rule.name for finding in result.broken}, result


@pytest.mark.parametrize("seed", [8, 15, 1000])
def test_rounds_with_the_noise_of_their_own_clip_norm_pass(seed):
    """Under seeds 8 and 15 the noisy count makes the norm of a round much larger than in others."""
    names, result = broken_in_rounds(adaptive(noise_of="own"), seed=seed)
    assert not names, result
    assert result["noise in every step"].verdict == "passed"


def test_rounds_with_the_noise_of_another_clip_norm_are_found():
    assert broken_in_rounds(adaptive(noise_of="first"))[0] == {"noise in every step"}
    assert "noise independent of the data" in broken_in_rounds(adaptive(noise_of="following"))[0]


def test_noise_that_returns_in_another_round_is_found():
    def cached(batches, seed):
        drawn = np.random.default_rng(seed).normal(0, 1.1, (2, batches.shape[2]))
        return [
            steps.clipped(rows, 1.0).sum(axis=0) + drawn[number % 2]
            for number, rows in enumerate(batches)
        ]

    assert broken_in_rounds(cached)[0] == {"noise in every step"}


def test_rounds_that_do_not_fit():
    with pytest.raises(InvalidInput, match="must return 1 rounds, got 2"):
        broken_in_rounds(lambda batches, seed: np.zeros((2, 500)))
    with pytest.raises(InvalidInput, match="rounds must be at least 2"):
        check_step(steps.correct, clip_norm=1.0, noise_multiplier=1.0, rounds=1)
