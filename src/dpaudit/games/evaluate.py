"""Losses of many models on a few examples: what an adversary with a data point looks at."""

from __future__ import annotations

import torch
from torch import Tensor

from dpaudit.games.starting_points import known_model, trainable
from dpaudit.mechanisms.dpsgd import DPSGD


def losses(mechanism: DPSGD, parameters: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """The loss of every model on every example, shape (runs, examples).

    Arguments:
        mechanism: What was trained: its model and its loss.
        parameters: One model in each row, shape (runs, parameters).
        features: Shape (examples, …).
        targets: Shape (examples,).
    """
    model = known_model(mechanism).to(parameters.device, parameters.dtype)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    shapes = [parameter.shape for parameter in trainable(model)]
    sizes = [parameter.numel() for parameter in trainable(model)]
    features, targets = features.to(parameters.device), targets.to(parameters.device)
    features = features.to(parameters.dtype) if features.is_floating_point() else features

    def one_run(flat: Tensor) -> Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        return mechanism.loss(torch.func.functional_call(model, given, (features,)), targets)

    with torch.no_grad():
        # A chunk of runs at a time: a ResNet's activations for all of them would not fit.
        return torch.func.vmap(one_run, chunk_size=256)(parameters)
