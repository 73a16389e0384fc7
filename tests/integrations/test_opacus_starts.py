"""Runs that start at different weights, or train on different batches, are named."""

import numpy as np
import pytest
from opacus_trainings import EXAMPLES, OPACUS_WARNINGS, fit, network, private

import dpaudit
from dpaudit.claims.power import SAME_IN_ALL_RUNS
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary

pytestmark = [
    OPACUS_WARNINGS,
    pytest.mark.filterwarnings("ignore:the canary is in every step:UserWarning"),
]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("returned", ["model", "gradients"])
def test_runs_that_start_at_different_weights_are_named(same, returned):
    def train(canary, inserted, seed):
        training = private(noise=1.0, seed=seed, module=network(0 if same else seed))
        with insert_canary(
            training.optimizer, canary, inserted, seed=seed, sampling="every step"
        ) as gradients:
            fit(training)
        return training.model if returned == "model" else gradients

    training = private(noise=1.0, seed=0, module=network(0))
    result = dpaudit.audit(
        train,
        canary=canary_for(training.optimizer),
        claim=claim_of(training.optimizer, steps=1, every_step=True),
        runs=16,
        confirm=False,
    )
    named = "start at different weights" in " ".join(result.summary().split())
    assert named == (returned == "model" and not same)


@pytest.mark.parametrize("same", [True, False])
def test_runs_with_different_batches_are_named(same):
    def train(canary, inserted, seed):
        training = private(noise=1.0, seed=seed, module=network(0))
        random = np.random.default_rng(0 if same else seed)
        inputs, labels = training.loader.dataset.tensors
        batches = [
            (inputs[places], labels[places]) for places in np.split(random.permutation(EXAMPLES), 3)
        ]
        with insert_canary(training.optimizer, canary, inserted, seed=seed, sampling=1 / 3):
            fit(training, loader=batches)
        return training.model

    result = dpaudit.audit(
        train,
        canary=canary_for(private(module=network(0)).optimizer),
        claim=dpaudit.Claim.from_dpsgd(noise_multiplier=1.0, steps=3, sampling_rate=1 / 3),
        runs=16,
        confirm=False,
    )
    assert ("train on different batches" in " ".join(result.summary().split())) == (not same)
    assert result.test.power.condition == ("" if same else SAME_IN_ALL_RUNS)
