"""The noisy gradients as evidence: exact projections, and bugs behind Adam in few runs."""

import numpy as np
import pytest
import torch
from opacus_trainings import OPACUS_WARNINGS, fit, private

import dpaudit
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary

pytestmark = [
    OPACUS_WARNINGS,
    pytest.mark.filterwarnings("ignore:the canary is in every step:UserWarning"),
]


def recorded(inserted, *, seed=0, epochs=1, sampling="every step", **options):
    training = private(seed=seed, **options)
    canary = canary_for(training.optimizer, count=3)
    coins = [inserted, False, inserted]
    with insert_canary(training.optimizer, canary, coins, seed=seed, sampling=sampling) as seen:
        fit(training, epochs=epochs)
    return seen


@pytest.mark.parametrize(
    "options",
    [{}, {"loss_reduction": "sum", "rate": 0.01}, {"optimizer_of": torch.optim.Adam}],
    ids=["mean", "sum", "adam"],
)
def test_a_canary_adds_one_clip_norm_to_its_projection(options):
    """Before the first update the other examples are the same with and without the canary."""
    with_it, without = (recorded(inserted, noise=1.0, **options) for inserted in (True, False))
    assert with_it.steps == 3
    difference = with_it.projections[0] - without.projections[0]
    np.testing.assert_allclose(difference, [1.0, 0.0, 1.0], atol=1e-4)


def test_projections_have_the_noise_that_is_claimed():
    seen = np.concatenate(
        [recorded(False, noise=2.0, seed=seed, epochs=20).projections for seed in range(2)]
    )
    assert seen.std(axis=0) == pytest.approx([2.0] * 3, rel=0.25)


STEPS, CLAIMED = 12, 1.0


def adam_training(true_share, sampling):
    def train(canary, inserted, seed):
        training = private(
            noise=CLAIMED, poisson=True, seed=seed, optimizer_of=torch.optim.Adam, rate=0.01
        )
        training.optimizer.noise_multiplier = true_share * CLAIMED  # the bug
        torch.manual_seed(seed)
        with insert_canary(
            training.optimizer, canary, inserted, seed=seed, sampling=sampling
        ) as gradients:
            fit(training, epochs=STEPS // 3)
        return gradients

    return train


@pytest.mark.parametrize(
    ("true_share", "runs", "violated"), [(0.0, 12, True), (0.5, 25, True), (1.0, 25, False)]
)
def test_too_little_noise_behind_adam_and_poisson_sampling_is_found(true_share, runs, violated):
    """Version 0.1, which scores the final parameters, calls no noise consistent in 400 runs."""
    training = private(noise=CLAIMED, poisson=True, optimizer_of=torch.optim.Adam)
    result = dpaudit.audit(
        adam_training(true_share, "own step"),
        canary=canary_for(training.optimizer, count=STEPS),
        claim=claim_of(training.optimizer, steps=1, every_step=True),
        runs=runs,
    )
    assert (result.verdict == "violation") == violated
    assert result.threat_model is dpaudit.ThreatModel.STANDARD


def test_too_many_canaries_for_the_steps_are_refused():
    training = private(noise=1.0)
    canary = canary_for(training.optimizer, count=5)
    with insert_canary(
        training.optimizer, canary, [True] * 5, seed=0, sampling="own step"
    ) as gradients:
        fit(training)
    with pytest.raises(dpaudit.errors.InvalidInput, match="3 steps, too few for 5 canaries"):
        gradients.scores()


def test_a_canary_with_its_own_step_is_in_that_step_only():
    seen = [recorded(inserted, noise=0.0, sampling="own step") for inserted in (True, False)]
    difference = seen[0].projections - seen[1].projections
    assert difference[0] == pytest.approx([1.0, 0.0, 0.0], abs=1e-4)
    assert difference[2, 2] == pytest.approx(1.0, abs=0.1)
