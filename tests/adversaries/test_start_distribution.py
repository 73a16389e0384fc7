"""The score of an unknown start: two normals if the start is public, edges if it is uniform."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from dpaudit.adversaries import StartDistribution
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import (
    SGD,
    CorrelatedNoise,
    FreshInitialisation,
    Insertion,
    Optimizer,
    UniformAverage,
    WarmupDecay,
)
from dpaudit.testing import easy_training
from dpaudit.threat_models import CraftedDimensions, HiddenStateView


def uniform_layer() -> torch.nn.Module:
    layer = torch.nn.Linear(6, 3)
    torch.nn.init.uniform_(layer.weight, -1.0, 1.0)
    torch.nn.init.zeros_(layer.bias)
    return layer


def view_of(values, *, period: int = 1, public: bool = False) -> HiddenStateView:
    training = dataclasses.replace(
        easy_training(noise_multiplier=1.0),
        build_model=uniform_layer,
        initialisation=FreshInitialisation(),
    )
    final = torch.zeros(len(values), 21)
    final[:, 0] = final[:, 20] = -torch.tensor(values)
    return HiddenStateView(
        mechanism=training,
        steps=20,
        initial=torch.zeros(21) if public else None,
        final=final,
        insertion=Insertion(period=period),
    )


CANARIES = CraftedDimensions(dimensions=torch.tensor([0, 20]), norm=1.0)
PER_STEP = 0.5 / 30


@pytest.mark.parametrize("period", [1, 5])
def test_a_start_without_spread_gives_two_normals(period: int) -> None:
    shift, noise = 20 / period * PER_STEP, np.sqrt(20) * PER_STEP
    values = [0.0, shift / 2, shift]
    expected = (np.array(values) - shift / 2) * shift / noise**2
    for public in (True, False):
        view = view_of(values, period=period, public=public)
        scores = StartDistribution().score(view, CANARIES)
        # The bias starts at 0 in every model.
        assert scores[:, 1].numpy() == pytest.approx(expected, abs=1e-3)


def test_values_beyond_the_edge_of_a_uniform_start_give_the_canary_away() -> None:
    shift, noise = 20 * PER_STEP, np.sqrt(20) * PER_STEP
    view = view_of([0.0, 1 + shift, -1 - 3 * noise])
    inside, beyond, before = StartDistribution().score(view, CANARIES)[:, 0].tolist()
    assert inside == pytest.approx(0.0, abs=0.3)
    assert beyond > 4
    assert before < -4


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": SGD(momentum=0.8, nesterov=True), "weight_decay": 0.1},
        {"schedule": WarmupDecay(warmup=3), "averaging": UniformAverage()},
        {"correlation": CorrelatedNoise(coefficients=(1.0, 0.5))},
    ],
    ids="-".join,
)
def test_shift_and_noise_follow_the_mechanism(settings: dict[str, Any]) -> None:
    """A training of one parameter without genuine gradients, step by step, is the oracle."""
    view = view_of([0.0], period=5, public=True)
    training = dataclasses.replace(view.mechanism, **settings)
    steps, unit = 15, 1.0 / 30  # an earlier horizon than the 20 steps

    def released(sums: np.ndarray) -> float:
        value = average = 0.0
        state = (0.0,) * training.optimizer.slots
        for step in range(steps):
            rate = training.rate(step)
            value, state = training.optimizer.step(
                (1 - rate * training.weight_decay) * value,
                sums[step] * unit,
                state,
                rate=rate,
                count=step + 1,
            )
            if training.averaging is not None:
                average = training.averaging.update(average, value, count=step + 1)
        return -value if training.averaging is None else -average

    shift = released(np.array([step % 5 == 0 for step in range(steps)], dtype=float))
    noise_of_steps = np.eye(steps)
    if training.correlation is not None:
        noise_of_steps = np.linalg.inv(training.correlation.matrix(steps))
    variance = sum(released(column) ** 2 for column in noise_of_steps.T)
    for value in (0.0, shift / 2, shift):
        final = torch.full((1, 21), -value)
        played = dataclasses.replace(view, mechanism=training, steps=steps, final=final)
        score = StartDistribution().score(played, CANARIES)[0, 0].item()
        assert score == pytest.approx((value - shift / 2) * shift / variance, rel=1e-5, abs=1e-6)


def test_an_optimizer_of_which_nothing_is_known_is_refused() -> None:
    class Sign(Optimizer):
        slots = 0

        def step(self, parameters, gradient, state, *, rate, count):
            return parameters - rate * gradient.sign(), ()

    training = dataclasses.replace(easy_training(), optimizer=Sign())
    with pytest.raises(InvalidInput, match="optimizer must be SGD or Adam for start-distribution"):
        StartDistribution().craft(training, Insertion(), canaries=1, seed=0)
