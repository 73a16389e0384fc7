"""The presets of the hidden state: assumptions that are checked, audits between their bounds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from dpaudit import audit
from dpaudit.adversaries import RareFeature
from dpaudit.engine import Speed
from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.errors import InvalidInput
from dpaudit.landscapes import ReadingWells
from dpaudit.mechanisms import Insertion, PoissonBatches, SmoothLoss
from dpaudit.presets import preset

CPU = Speed(device="cpu", workers=1)


def genuine_sum(training, parameters, step):
    """The clipped gradient sum of a step at many models, shape (models, parameters)."""
    places = training.batches.indices(step, len(training.data))
    features = torch.from_numpy(training.data.features[places]).to(parameters)
    targets = torch.from_numpy(training.data.targets[places])
    return clipped_gradients(training, parameters, features, targets).sum(1)


@pytest.mark.parametrize("name", ["logistic", "softmax-head"])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_updates_are_as_lipschitz_as_assumed(name: str, decay: float) -> None:
    training = dataclasses.replace(preset(name).training(batch_size=32), weight_decay=decay)
    constant = training.smoothness.step_lipschitz(training)
    assert constant == pytest.approx(1 - training.learning_rate * decay)
    random = torch.Generator().manual_seed(0)
    size = training.data.features.shape[1] * (1 if name == "logistic" else 10)
    first = torch.randn(6, size, generator=random, dtype=torch.float64)
    second = first + 0.1 * torch.randn(6, size, generator=random, dtype=torch.float64)

    def update(parameters):
        kept = 1 - training.learning_rate * decay
        return kept * parameters - training.learning_rate / 32 * genuine_sum(
            training, parameters, 0
        )

    ratio = (update(first) - update(second)).norm(dim=1) / (first - second).norm(dim=1)
    assert ratio.max() <= constant + 1e-9


def test_assumptions_that_do_not_hold_are_refused() -> None:
    head = preset("softmax-head").training()
    small = dataclasses.replace(head, clip_norm=1.0)
    with pytest.raises(InvalidInput, match="clip_norm must be at least"):
        head.smoothness.step_lipschitz(small)
    poisson = dataclasses.replace(head, batches=PoissonBatches(rate=0.1))
    with pytest.raises(InvalidInput, match="fixed size"):
        head.smoothness.step_lipschitz(poisson)
    smooth = SmoothLoss(smoothness=3.0)
    assert smooth.step_lipschitz(head) == pytest.approx(1 + 3 * head.learning_rate)
    steep = dataclasses.replace(preset("logistic").training(), learning_rate=10.0)
    assert steep.smoothness.step_lipschitz(steep) > 1


def test_an_audit_shows_both_upper_bounds_and_stays_between() -> None:
    training = preset("logistic").training(steps=40, batch_size=20)
    result = audit(
        training,
        RareFeature(),
        runs=40,
        canaries=40,
        insertion=Insertion(period=4),
        seed=2,
        speed=CPU,
    )
    bound = result.upper["hidden-state-lipschitz"]
    assert bound.mu == pytest.approx(math.sqrt(10 / 4) / 4)
    assert bound.epsilon < result.upper["gaussian"].epsilon
    assert any("logistic" in text for text in bound.assumptions)
    scores = result.scores
    spread = math.sqrt((scores.inserted_scores.var() + scores.other_scores.var()) / 2)
    mu = (scores.inserted_scores.mean() - scores.other_scores.mean()) / spread
    assert mu == pytest.approx(bound.mu, abs=4 * 2 / math.sqrt(len(scores)))


def test_the_crafted_network_moves_like_reading_wells() -> None:
    training = preset("crafted-network").training(steps=10, period=5)
    design = training.build_model.args[0]
    wells = ReadingWells(period=5, width=design.width, unit=design.unit, most=design.most)
    positions = np.linspace(-200.0, 200.0, 801)
    # Rounded to whole gradients, so not at the jumps themselves.
    parameters = torch.zeros(len(positions), 9)
    parameters[:, 0] = torch.from_numpy(positions / design.scale)
    for step, landscape in ((0, wells.at(3)), (1, wells.at(2)), (3, wells.at(3))):
        sums = genuine_sum(training, parameters, step)
        moved = -sums[:, 0].numpy()
        # Descent moves against the canary: the process is mirrored.
        expected = -landscape.drift(-positions, 128.0)
        near = np.abs(moved - expected) < 1.0
        assert near.mean() > 0.95
        # The other parameters are left alone, and nothing is clipped.
        assert sums[:, 1:].abs().max() < 1e-4
    norms = clipped_gradients(
        training,
        parameters[::50],
        torch.from_numpy(training.data.features),
        torch.from_numpy(training.data.targets),
    ).norm(dim=2)
    assert norms.max() < 1.0


def test_the_crafted_networks_canary_is_a_data_point_of_norm_c() -> None:
    training = preset("crafted-network").training(steps=10, period=5)
    canaries = RareFeature().craft(training, Insertion(period=5), canaries=1, seed=0)
    far = torch.zeros(3, 9)
    far[:, 0] = torch.tensor([-3.0, 0.0, 3.0])
    gradients = clipped_gradients(training, far, canaries.features, canaries.targets)[:, 0]
    assert torch.allclose(gradients[:, 0], torch.ones(3))
    assert gradients[:, 1:].abs().max() == 0


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_the_crafted_network_in_opacus() -> None:
    pytest.importorskip("opacus")
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    training = preset("crafted-network").training(steps=10, period=5)
    model = training.build_model()
    private = GradSampleModule(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = DPOptimizer(
        torch.optim.SGD(trained, lr=training.learning_rate),
        noise_multiplier=0.0,
        max_grad_norm=training.clip_norm,
        expected_batch_size=128,
    )
    with torch.no_grad():
        model.position.bias.fill_(5.3 / 1280)
    for step in range(4):
        before = torch.cat([parameter.detach().flatten() for parameter in trained])
        expected = before - training.learning_rate / 128 * genuine_sum(training, before[None], step)
        places = training.batches.indices(step, len(training.data))
        optimizer.zero_grad()
        loss = training.loss(
            private(torch.from_numpy(training.data.features[places])),
            torch.from_numpy(training.data.targets[places]),
        )
        loss.mean().backward()
        optimizer.step()
        after = torch.cat([parameter.detach().flatten() for parameter in trained])
        assert torch.allclose(after, expected[0], atol=1e-6)


def test_crafted_network_needs_a_period_and_a_batch() -> None:
    with pytest.raises(InvalidInput, match="period must be at least 2"):
        preset("crafted-network").training(period=1)
    with pytest.raises(InvalidInput, match="batch_size must be at least"):
        preset("crafted-network").training(batch_size=16)
