"""The estimated Lipschitz constant of a step is the norm of its Jacobian."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.testing import easy_training
from dpaudit_paper.lipschitz import jacobian_norm


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_the_norm_of_the_jacobian(clip_norm: float) -> None:
    training = dataclasses.replace(easy_training(), clip_norm=clip_norm)
    start = initial_parameters(training, seed=0, runs=torch.arange(1), dtype=torch.float64)[0]
    indices = training.batches.indices(0, len(training.data))
    features = torch.from_numpy(training.data.features[indices]).double()
    targets = torch.from_numpy(training.data.targets[indices])

    def update(flat: torch.Tensor) -> torch.Tensor:
        gradients = clipped_gradients(training, flat[None], features, targets)[0]
        return flat - training.learning_rate / len(indices) * gradients.sum(0)

    jacobian = np.stack(
        [
            ((update(start + 1e-5 * unit) - update(start - 1e-5 * unit)) / 2e-5).numpy()
            for unit in torch.eye(len(start), dtype=torch.float64)
        ],
        axis=1,
    )
    expected = np.linalg.norm(jacobian, ord=2)
    assert jacobian_norm(training, start, step=0) == pytest.approx(expected, rel=1e-6)
