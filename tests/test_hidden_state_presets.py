"""The presets of the hidden state: assumptions that are checked, audits between their bounds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from dpaudit import audit, plan
from dpaudit.adversaries import OneShotIterates, RareFeature
from dpaudit.engine import Speed
from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import Insertion, PoissonBatches, SmoothLoss
from dpaudit.presets import preset
from dpaudit_paper.landscapes import ReadingWells

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


def test_plan_and_audit_show_the_bound_of_the_phase() -> None:
    training = preset("logistic").training(steps=50, batch_size=20)
    insertion = Insertion.in_phase("last", period=5)
    slow = Speed(device="cpu", workers=1, compile=False)
    planned = plan(training, RareFeature(), runs=8, insertion=insertion, speed=slow)
    # At c = 1 every insertion but the last one is averaged over a period.
    assert planned.hidden_upper.mu == pytest.approx(math.sqrt(1 + 9 / 5) / 4)
    assert [bound["method"] for bound in planned.to_dict()["upper"]] == [
        "gaussian",
        "hidden-state-lipschitz",
    ]
    played = audit(training, RareFeature(), runs=8, insertion=insertion, speed=slow, anyway=True)
    assert played.upper["hidden-state-lipschitz"].epsilon == planned.hidden_upper.epsilon
    # An adversary who sees the iterates has no such bound.
    seen = plan(training, OneShotIterates(), runs=8, insertion=insertion, speed=slow)
    assert seen.hidden_upper is None


@pytest.mark.parametrize("phase", ["first", "last"])
def test_the_batch_after_an_insertion_reads(phase: str) -> None:
    insertion = Insertion.in_phase(phase, period=4)
    training = preset("crafted-network").training(steps=8, period=4, phase=phase)
    width = training.build_model.args[0].width
    # In the middle between two thresholds, a read jumps to another cell and a well does not.
    place = torch.zeros(1, 9)
    place[0, 0] = 0.3 * width / training.build_model.args[0].scale
    for step in range(8):
        jumped = genuine_sum(training, place, step)[0, 0].abs() > width / 2
        assert bool(jumped) == insertion.at(step + 3)


def opacus_training(training, *, seed: int, canary=None, noise: float) -> torch.Tensor:
    """The trained parameters of one run in Opacus."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = training.build_model()
    private = GradSampleModule(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    size = training.batches.batch_size
    optimizer = DPOptimizer(
        torch.optim.SGD(trained, lr=training.learning_rate),
        noise_multiplier=noise,
        max_grad_norm=training.clip_norm,
        expected_batch_size=size,
        generator=torch.Generator().manual_seed(seed),
    )
    data = training.data
    features, targets = torch.from_numpy(data.features), torch.from_numpy(data.targets)
    for step in range(training.steps):
        places = training.batches.indices(step, len(data))
        x, y = features[places], targets[places]
        if canary is not None and Insertion(period=5).at(step):
            x, y = torch.cat([x, canary.features]), torch.cat([y, canary.targets])
        optimizer.zero_grad()
        training.loss(private(x), y).mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in trained])


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_the_crafted_network_in_opacus_without_noise() -> None:
    pytest.importorskip("opacus")
    training = preset("crafted-network").training(steps=12, period=5)
    canary = RareFeature().craft(training, Insertion(period=5), canaries=1, seed=0)
    for inserted in (None, canary):
        expected = training.build_model().position.bias.detach().new_zeros(1, 9)
        for step in range(training.steps):
            sums = genuine_sum(training, expected, step)
            if inserted is not None and Insertion(period=5).at(step):
                sums += clipped_gradients(training, expected, canary.features, canary.targets)[:, 0]
            expected = expected - training.learning_rate / 128 * sums
        found = opacus_training(training, seed=0, canary=inserted, noise=0.0)
        assert torch.allclose(found, expected[0], atol=1e-6)


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_the_crafted_network_in_opacus_has_the_scores_of_the_chain() -> None:
    """Noisy runs in Opacus: the final cells have the mean and spread of the exact chain."""
    pytest.importorskip("opacus")
    runs, insertions, sigma = 16, 3, 1.0
    training = preset("crafted-network").training(
        steps=5 * insertions, period=5, batch_size=32, noise_multiplier=sigma
    )
    design = training.build_model.args[0]
    canary = RareFeature().craft(training, Insertion(period=5), canaries=1, seed=0)
    wells = ReadingWells(period=5, width=design.width, unit=design.unit, most=design.most)
    exact = wells.after(insertions, noise_multiplier=sigma)
    for inserted, masses in ((None, exact.without), (canary, exact.canary)):
        ends = [
            opacus_training(training, seed=seed, canary=inserted, noise=sigma)[0]
            for seed in range(runs)
        ]
        # Descent moves against the canary, so that the process is mirrored.
        cells = np.round(-np.array(ends) * design.scale / design.width)
        places = np.arange(len(masses)) - len(masses) // 2
        mean = float(masses @ places)
        spread = math.sqrt(float(masses @ (places - mean) ** 2))
        assert cells.mean() == pytest.approx(mean, abs=4 * spread / math.sqrt(runs))
        assert 0.5 * spread < cells.std() < 1.6 * spread


def test_crafted_network_needs_a_period_and_a_batch() -> None:
    with pytest.raises(InvalidInput, match="period must be at least 2"):
        preset("crafted-network").training(period=1)
    with pytest.raises(InvalidInput, match="batch_size must be at least"):
        preset("crafted-network").training(batch_size=16)
