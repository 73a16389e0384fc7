"""Audits of Opacus trainings by tensor, and of models that are only partly trained privately."""

import pytest
import torch
from opacus_trainings import OPACUS_WARNINGS, fit, network, private

import dpaudit
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary
from dpaudit.trainings.run import UncoveredParameters, collecting

pytestmark = [
    OPACUS_WARNINGS,
    pytest.mark.filterwarnings("ignore:the canary is in every step:UserWarning"),
]
STEPS, SIGMA = 3, 1.0


def body_only(seed):
    """A training whose private optimizer has the first layer only."""
    model = network(seed)
    return private(noise=SIGMA, seed=seed, module=model, parameters=model[0].parameters())


def train_head_elsewhere(canary, inserted, seed):
    """The bug: the head is trained by an optimizer without clipping and noise."""
    training = body_only(seed)
    head = torch.optim.SGD(training.model._module[2].parameters(), lr=0.1)
    with insert_canary(
        training.optimizer, canary, inserted, seed=seed, sampling="every step"
    ) as gradients:
        for inputs, labels in training.loader:
            training.optimizer.zero_grad()
            head.zero_grad()
            training.criterion(training.model(inputs), labels).backward()
            training.optimizer.step()
            head.step()
    return gradients


def train_body_only(canary, inserted, seed):
    """Correct: the head is not frozen, but nothing trains it."""
    training = body_only(seed)
    with insert_canary(
        training.optimizer, canary, inserted, seed=seed, sampling="every step"
    ) as gradients:
        fit(training)
    return gradients


@pytest.mark.parametrize(
    ("train", "verdict"), [(train_head_elsewhere, "inconclusive"), (train_body_only, "consistent")]
)
def test_a_head_trained_by_another_optimizer_is_never_consistent(train, verdict):
    training = body_only(0)
    result = dpaudit.audit(
        train,
        canary=canary_for(training.optimizer, count=6),
        claim=claim_of(training.optimizer, steps=STEPS, every_step=True),
        runs=20,
        power=0.5,
        anyway=True,
    )
    assert result.failures == ()
    assert result.verdict == verdict
    assert ("2.weight" in result.sentence) == (verdict == "inconclusive")


def train_without_noise_in_biases(canary, inserted, seed):
    training = private(noise=SIGMA, seed=seed)

    def clean_biases(*_):
        for one in training.optimizer.params:
            if one.ndim == 1 and one.grad is not None:
                one.grad = (
                    one.summed_grad.view_as(one.grad) / training.optimizer.expected_batch_size
                )

    training.optimizer.original_optimizer.register_step_pre_hook(clean_biases)
    with insert_canary(
        training.optimizer, canary, inserted, seed=seed, sampling="every step"
    ) as gradients:
        fit(training)
    return gradients


def test_biases_without_noise_are_found_and_named():
    training = private(noise=SIGMA)
    canary = canary_for(training.optimizer, model=training.model, per_tensor=True)
    assert canary.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    result = dpaudit.audit(
        train_without_noise_in_biases,
        canary=canary,
        claim=claim_of(training.optimizer, steps=STEPS, every_step=True),
        runs=60,
    )
    refuted = {name for name, test in result.final.tensors.items() if test.verdict == "violation"}
    assert result.verdict == "violation"
    assert refuted == {"0.bias", "2.bias"}


def train_past_the_optimizer(canary, inserted, seed):
    """The bug: the raw gradient is also subtracted, where the canary is not seen."""
    training = private(noise=SIGMA, seed=seed)
    with insert_canary(training.optimizer, canary, inserted, seed=seed, sampling="every step"):
        for inputs, labels in training.loader:
            training.optimizer.zero_grad()
            training.criterion(training.model(inputs), labels).backward()
            for one in training.optimizer.params:
                one.data.sub_(0.1 * one.grad_sample.mean(dim=0))
            training.optimizer.step()
    return training.model


def test_parameters_changed_between_private_steps_are_reported():
    canary = canary_for(private(noise=SIGMA).optimizer)
    with pytest.warns(UncoveredParameters, match="Between the steps"):
        train_past_the_optimizer(canary, True, 0)
    training = private(noise=SIGMA)
    with (
        collecting() as reports,
        insert_canary(training.optimizer, canary, True, seed=0, sampling="every step"),
    ):
        fit(training)
    assert not reports
