"""The slow twin of the clipped sums: float64, one backward pass per example."""

from __future__ import annotations

import copy
from collections.abc import Iterator

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
    """The clipped sum of one model, flat; arguments as of `ClippedSums`.

    Features have shape (examples, …), or (examples, views, …) for several views.
    """
    gradients = example_gradients(model, loss, features, targets, views=views, dtype=dtype)
    total = torch.zeros(sum(p.numel() for p in trainable(model)), dtype=dtype)
    for index, gradient in enumerate(gradients):
        factor = _factor(float(gradient.norm()), clip_norm, clipping)
        total += factor * (1.0 if weights is None else float(weights[index])) * gradient
    return total


def example_gradients(
    model: torch.nn.Module,
    loss: Loss,
    features: Tensor,
    targets: Tensor,
    *,
    views: int = 1,
    dtype: torch.dtype = torch.float64,
) -> Iterator[Tensor]:
    """The flat gradient of each example before clipping; arguments as of `clipped_sum`."""
    model = copy.deepcopy(model).to(dtype)
    features = features.to(dtype) if features.is_floating_point() else features
    for index in range(len(targets)):
        points, labels = features[index : index + 1], targets[index : index + 1]
        if views > 1:
            points, labels = points[0], labels.expand(views, *labels.shape[1:])
        total = loss(model(points), labels).sum()
        slopes = torch.autograd.grad(total, trainable(model), allow_unused=True)
        pairs = zip(slopes, trainable(model), strict=True)
        flat = [torch.zeros_like(p).flatten() if s is None else s.flatten() for s, p in pairs]
        yield torch.cat(flat) / views


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
