"""The score of an unknown start: two normals if the start is public, edges if it is uniform."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dpaudit.adversaries import StartDistribution
from dpaudit.mechanisms.dpsgd import FreshInitialisation, Insertion
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
