"""Blank canaries: starts that are crafted before the training, and queries that tell more."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import pytest
import torch

from dpaudit.adversaries import (
    AdversarialSample,
    CanaryPoints,
    ChoosesStart,
    RandomDimension,
    WorstCaseStart,
)
from dpaudit.adversaries.crafting import audited_mechanism, generator
from dpaudit.engine import simulate
from dpaudit.engine.evaluate import clipped_gradients, losses
from dpaudit.engine.starting_points import flat_parameters, known_model
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, FreshInitialisation, Insertion
from dpaudit.testing import easy_training
from dpaudit.threat_models import HiddenStateAdversary, HiddenStateView


def start_of(training: DPSGD) -> torch.Tensor:
    return flat_parameters(known_model(training)).unsqueeze(0)


def gradients(training: DPSGD) -> torch.Tensor:
    features, targets = map(torch.from_numpy, (training.data.features, training.data.targets))
    return clipped_gradients(training, start_of(training), features, targets)[0]


def mean_gradient(training: DPSGD) -> float:
    return float(gradients(training).mean(0).norm())


def test_genuine_gradients_are_small_at_the_crafted_start() -> None:
    fresh = dataclasses.replace(easy_training(), initialisation=FreshInitialisation())
    adversary = WorstCaseStart(epochs=60, learning_rate=0.2)
    for training in (easy_training(), fresh):
        chosen = audited_mechanism(adversary, training)
        assert mean_gradient(chosen) < mean_gradient(training) / 4
        again = adversary.prepare(training)
        assert torch.equal(start_of(chosen), start_of(again))


def test_sharp_outputs_make_genuine_gradients_vanish_but_not_the_canarys() -> None:
    training = easy_training(noise_multiplier=0.1)
    fitted = WorstCaseStart(epochs=60, learning_rate=0.2)
    sharp = dataclasses.replace(fitted, sharpness=5.0)
    plain, chosen = fitted.prepare(training), sharp.prepare(training)
    features = torch.from_numpy(training.data.features)
    outputs = [known_model(mechanism)(features) for mechanism in (plain, chosen)]
    torch.testing.assert_close(outputs[1], 5 * outputs[0])
    half_of = [gradients(mechanism).norm(dim=1).median() for mechanism in (plain, chosen)]
    assert half_of[1] < half_of[0] / 100
    blank = sharp.craft(chosen, Insertion(), canaries=1, seed=0)
    clipped = clipped_gradients(chosen, start_of(chosen), blank.features, blank.targets)
    assert float(clipped.norm()) == pytest.approx(chosen.clip_norm, rel=1e-4)
    without = dataclasses.replace(training, build_model=lambda: torch.nn.Conv1d(6, 3, 1))
    with pytest.raises(InvalidInput, match="sharpness must be 1"):
        dataclasses.replace(sharp, epochs=0).prepare(without)


def test_the_start_can_be_kept_or_fitted_to_other_examples() -> None:
    training = easy_training()
    kept = WorstCaseStart(epochs=0).prepare(training)
    assert torch.equal(start_of(kept), start_of(training))
    part = training.data.take(range(10))
    other = WorstCaseStart(epochs=5, examples=part).prepare(training)
    assert other.data is training.data
    assert not torch.equal(start_of(other), start_of(WorstCaseStart(epochs=5).prepare(training)))


def test_the_blank_example_has_the_class_that_the_start_likes_least() -> None:
    training = easy_training()
    blank = WorstCaseStart().craft(training, Insertion(), canaries=1, seed=0)
    assert not blank.features.any()
    outputs = known_model(training)(blank.features)
    assert blank.targets.tolist() == [int(outputs.argmin())]


def test_the_crafted_query_separates_the_shadow_models_better_than_the_canary() -> None:
    training = easy_training(noise_multiplier=4.0)
    crafted = AdversarialSample(shadows=8).craft(training, Insertion(), canaries=1, seed=0)
    assert crafted.asked is not None
    seed = int(generator(0).integers(2**62, size=1)[0])
    out, inserted = (
        simulate(training, noisy=True, runs=8, seed=seed, canaries=canaries).models
        for canaries in (None, crafted)
    )

    def separation(features: torch.Tensor) -> float:
        without = losses(training, out, features, crafted.targets)
        having = losses(training, inserted, features, crafted.targets)
        return float((without.mean() - having.mean()) / (without.var() + having.var()).sqrt())

    assert separation(crafted.asked) > 1.05 * separation(crafted.features) > 0
    with pytest.raises(InvalidInput, match="with a query"):
        AdversarialSample().queries(training, dataclasses.replace(crafted, asked=None))


@pytest.mark.parametrize("adversary", [WorstCaseStart(), AdversarialSample()], ids=repr)
def test_there_is_one_blank_example_and_it_needs_a_class(
    adversary: WorstCaseStart | AdversarialSample,
) -> None:
    with pytest.raises(InvalidInput, match="canaries must be 1"):
        adversary.craft(easy_training(), Insertion(), canaries=2, seed=0)
    data = dataclasses.replace(
        easy_training().data, classes=None, targets=easy_training().data.features[:, :3]
    )
    regression = dataclasses.replace(easy_training(), data=data, loss=lambda out, _: out.sum(1))
    with pytest.raises(InvalidInput, match="data must have one class each"):
        adversary.craft(regression, Insertion(), canaries=1, seed=0)


@dataclasses.dataclass(frozen=True)
class _OtherLayers(HiddenStateAdversary, ChoosesStart):
    name: ClassVar[str] = "other-layers"
    paper: ClassVar[str] = "none"

    def prepare(self, mechanism: DPSGD) -> DPSGD:
        return dataclasses.replace(mechanism, build_model=lambda: torch.nn.Linear(6, 3, bias=False))

    def craft(self, *given: Any, **more: Any) -> CanaryPoints:
        raise NotImplementedError

    def score(self, view: HiddenStateView, canaries: Any) -> torch.Tensor:
        return RandomDimension().score(view, canaries)


def test_a_chosen_start_keeps_the_layers() -> None:
    with pytest.raises(InvalidInput, match="must keep the layers of the model"):
        audited_mechanism(_OtherLayers(), easy_training())
