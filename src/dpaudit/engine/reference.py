"""The slow twin of the clipped sums: float64, one backward pass per example."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from dpaudit.engine.clipped_sums import Loss
from dpaudit.engine.starting_points import trainable
from dpaudit.mechanisms.clipping import (
    AutomaticClipping,
    Clipping,
    FlatClipping,
    NormalisedGradients,
)


def clipped_sum(
    model: torch.nn.Module,
    loss: Loss,
    features: Tensor,
    targets: Tensor,
    *,
    clip_norm: float,
    clipping: Clipping | None = None,
    weights: Tensor | None = None,
    views: int = 1,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The clipped sum of one model, flat.

    Arguments:
        model: Any module; it is copied. Gradients are taken at its parameters.
        loss: One loss per example.
        features: Shape (examples, …), or (examples, views, …) for several views.
        targets: Shape (examples, …).
        clip_norm: C; infinity clips nothing.
        clipping: The kind of clipping; flat by default.
        weights: A factor for each example after clipping; 1 by default.
        views: Number of views of each example, averaged before clipping.
        dtype: The precision of the computation.
    """
    model = copy.deepcopy(model).to(dtype)
    features = features.to(dtype) if features.is_floating_point() else features
    total: Tensor | None = None
    for index in range(len(targets)):
        points, labels = features[index : index + 1], targets[index : index + 1]
        if views > 1:
            points, labels = points[0], labels.expand(views, *labels.shape[1:])
        gradient = _gradient(model, loss, points, labels) / views
        factor = _factor(float(gradient.norm()), clip_norm, clipping)
        if weights is not None:
            factor *= float(weights[index])
        total = factor * gradient if total is None else total + factor * gradient
    if total is None:
        return torch.zeros(sum(p.numel() for p in trainable(model)), dtype=dtype)
    return total


def _factor(norm: float, clip_norm: float, clipping: Clipping | None) -> float:
    match clipping:
        case None | FlatClipping():
            return 1.0 if norm <= clip_norm else clip_norm / norm
        case NormalisedGradients():
            return clip_norm / norm if norm > 0 else 0.0
        case AutomaticClipping():
            return clip_norm / (norm + clipping.stability)
        case _:
            return float(clipping.factor(np.float64(norm), clip_norm))


def _gradient(model: torch.nn.Module, loss: Loss, features: Tensor, targets: Tensor) -> Tensor:
    losses = loss(model(features), targets)
    gradients = torch.autograd.grad(losses.sum(), trainable(model), allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(parameter).flatten() if gradient is None else gradient.flatten()
            for gradient, parameter in zip(gradients, trainable(model), strict=True)
        ]
    )
