"""Losses of many models at once equal those of one model at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import cross_entropy

from dpaudit.data import Examples
from dpaudit.engine.evaluate import losses
from dpaudit.engine.starting_points import flat_parameters
from dpaudit.mechanisms.batches import FullBatch
from dpaudit.mechanisms.dpsgd import DPSGD


@pytest.mark.parametrize("name", ["fcnn", "small resnet", "partly frozen", "tied and called twice"])
def test_losses_equal_those_of_single_models(cases: dict[str, Any], name: str) -> None:
    case = cases[name]
    mechanism = DPSGD(
        build_model=case.build,
        loss=cross_entropy,
        data=Examples(features=case.features.numpy(), targets=case.targets.numpy(), classes=11),
        batches=FullBatch(),
        steps=1,
        learning_rate=1.0,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    torch.manual_seed(0)
    models = [case.build() for _ in range(3)]
    parameters = torch.stack([flat_parameters(model) for model in models])
    found = losses(mechanism, parameters, case.features, case.targets)
    for model, row in zip(models, found, strict=True):
        with torch.no_grad():
            expected = cross_entropy(model(case.features), case.targets)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)
