"""The same network and batches as `bugs._common`, in the words of Opacus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import Tensor, nn, optim
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from bugs._common import (
    BATCH,
    CLIP,
    SHAPES,
    SIGMA,
    SIZES,
    STEPS,
    crafted_rows,
    generator,
    housing,
    moved,
    start,
)


def network() -> nn.Module:
    """The network 8-48-48-2 at the public start."""
    layers = [nn.Linear(weight[1], weight[0]) for weight in SHAPES[::2]]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    vector_to_parameters(start().clone(), model.parameters())
    return model


def loader(steps: int = STEPS) -> DataLoader[Any]:
    """The public batches, in order."""
    features, classes = housing()
    used = steps * BATCH
    return DataLoader(TensorDataset(features[:used], classes[:used]), batch_size=BATCH)


def make_private(
    model: nn.Module,
    optimizer: optim.Optimizer,
    batches: DataLoader[Any],
    *,
    seed: int,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """``PrivacyEngine.make_private`` with known batches, and noise from the run's seed."""
    settings = {"noise_multiplier": SIGMA, "max_grad_norm": CLIP, "poisson_sampling": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns that torch's generator is not a secure one
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=batches,
            noise_generator=generator(seed),
            **(settings | options),
        )
    return tuple(made)


def add_gradients(model: nn.Module, canary: Any, inserted: Any) -> None:
    """An example with the canary's gradient joins the batch, after backward().

    It adds a row to ``grad_sample``, as Opacus sees an example, and a share to ``grad``, as an
    optimizer that knows nothing of privacy sees it.
    """
    rows = crafted_rows(canary, inserted)
    pieces = rows.split(SIZES, dim=1)
    for parameter, piece in zip(model.parameters(), pieces, strict=True):
        crafted: Tensor = piece.view(-1, *parameter.shape)
        parameter.grad_sample = torch.cat([parameter.grad_sample, crafted])  # type: ignore[attr-defined]
        parameter.grad = parameter.grad + crafted.sum(dim=0) / BATCH


def parameters_moved(model: nn.Module) -> np.ndarray:
    """How far the final parameters are from the public start."""
    return moved(parameters_to_vector(model.parameters()).detach())
