"""Audits of Opacus trainings by tensor, and of models that are only partly trained privately."""

import numpy as np
import pytest
import torch
from opacus_trainings import OPACUS_WARNINGS, fit, network, private
from torch import nn

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


def test_parameters_outside_the_optimizer_are_reported_with_their_names():
    training = body_only(0)
    canary = canary_for(training.optimizer)
    with pytest.warns(UncoveredParameters, match=r"2\.weight.*2\.bias"):
        train_head_elsewhere(canary, True, 0)
    with collecting() as names:
        train_body_only(canary, True, 0)
    assert not names


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


class TinyTransformer(nn.Module):
    """The smallest model of the kind of BERT: tokens, one attention head, a class."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(7, 4), nn.LayerNorm(4)
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, tokens):
        x = self.norm(self.tokens(tokens))
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), dim=-1)
        return self.head((x + weights @ self.value(x)).mean(dim=1))


def transformer(seed):
    opacus = pytest.importorskip("opacus")
    torch.manual_seed(seed)
    data = torch.utils.data.TensorDataset(
        torch.arange(120).reshape(24, 5) % 7, torch.arange(24) % 2
    )
    model = TinyTransformer()
    return opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        data_loader=torch.utils.data.DataLoader(data, batch_size=8),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
        noise_generator=torch.Generator().manual_seed(seed),
    )


def train_transformer(canary, inserted, seed):
    model, optimizer, loader = transformer(seed)
    optimizer.noise_multiplier = 0.0  # the bug
    with insert_canary(optimizer, canary, inserted, seed=seed, sampling="own step") as gradients:
        for tokens, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens), labels).backward()
            optimizer.step()
    return gradients


def test_no_noise_behind_adam_and_sampling_is_found_in_a_transformer():
    """Version 0.1 calls this consistent after 400 runs of a BERT: it scores final parameters."""
    _, optimizer, loader = transformer(0)
    result = dpaudit.audit(
        train_transformer,
        canary=canary_for(optimizer, count=len(loader)),
        claim=claim_of(optimizer, steps=1, every_step=True),
        runs=50,
        until_violation=True,
    )
    assert result.verdict == "violation"
    assert result.stopped_at <= 50
    assert result.threat_model is dpaudit.ThreatModel.STANDARD
    assert np.isfinite(result.scores.score).all()


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
