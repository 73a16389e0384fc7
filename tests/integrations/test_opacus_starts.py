"""Runs that start at different weights are named, where the final model is audited."""

import pytest
from opacus_trainings import OPACUS_WARNINGS, fit, network, private

import dpaudit
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
