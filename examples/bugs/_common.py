"""What all trainings of the catalogue share, and what is right in them.

Every file next to this one repeats the loop of `bugs.correct.plain` and gets one thing wrong. The
data, the network, the batches and the start are public: the same in every run, so that runs differ
in their noise only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from dpaudit import Claim, audit
from dpaudit.data import california_housing
from dpaudit.trainings import GradientCanary

Scoring = Callable[[Any, Any], Any]

STEPS, BATCH, RATE = 9, 32, 0.1
CLIP, SIGMA = 1.0, 3.0
CLAIM = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS)
"""The canary is in all nine known batches: sqrt(9) / 3, so 1-GDP, epsilon 4.38 at delta 1e-5."""

SHAPES = ((48, 8), (48,), (48, 48), (48,), (2, 48), (2,))
SIZES = tuple(math.prod(shape) for shape in SHAPES)
PARAMETERS = sum(SIZES)


def axis_canary(count: int = 1, *, clip_norm: float = CLIP) -> GradientCanary:
    """The canary of most files: gradients of norm 10 C, each along an axis of its own."""
    return GradientCanary.draw(PARAMETERS, clip_norm=clip_norm, count=count, seed=1)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CraftedCanary:
    """A canary for bugs that one axis does not show.

    Arguments:
        direction: Where its gradient points, flat, of norm 1.
        norm: The norm of its gradient before clipping.
        companions: Gradients of examples that are present with and without the canary; they
            belong to the data set that the adversary chose.
        clip_norm: C, the norm that the training claims to clip to.
    """

    direction: Tensor
    norm: float
    companions: Tensor = field(default_factory=lambda: torch.zeros(0, PARAMETERS))
    clip_norm: float = CLIP
    parameters: int = PARAMETERS
    count: int = 1

    def rows(self, inserted: Any) -> Tensor:
        """The crafted gradients before clipping: the companions, then the canary if inserted."""
        own = self.norm * self.direction[None] if bool(np.all(inserted)) else torch.zeros(0)
        return torch.cat([self.companions, own.view(-1, self.parameters)])

    def score(self, final: Any, initial: Any = None) -> np.ndarray:
        """How far the parameters moved against the canary's gradient."""
        moved = np.asarray(final) - (0.0 if initial is None else np.asarray(initial))
        return np.array([-float(moved @ self.direction.numpy())])


def axis(index: int, size: int = PARAMETERS) -> Tensor:
    """The unit vector along one axis."""
    return nn.functional.one_hot(torch.tensor(index), size).float()


def start() -> Tensor:
    """The public initial parameters, flat."""
    return _start().clone()


@cache
def _start() -> Tensor:
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    parts = [2 * torch.rand(shape, generator=random) - 1 for shape in SHAPES]
    return torch.cat([part.flatten() / part.shape[-1] ** 0.5 for part in parts])


@cache
def housing() -> tuple[Tensor, Tensor]:
    """Features and classes of California Housing."""
    data = california_housing()
    return torch.as_tensor(data.features, dtype=torch.float32), torch.as_tensor(data.targets)


def batch(step: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
    """The public batch of a step."""
    features, classes = housing()
    chosen = slice(step * size, (step + 1) * size)
    return features[chosen], classes[chosen]


def layers(theta: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer of the network 8-48-48-2."""
    parts = [part.view(shape) for part, shape in zip(theta.split(SIZES), SHAPES, strict=True)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def logits(theta: Tensor, features: Tensor) -> Tensor:
    """The outputs of the network."""
    return forward(theta, features)[-1]


def forward(theta: Tensor, features: Tensor) -> list[Tensor]:
    """What enters each layer, and last the outputs; one example a row."""
    *hidden_layers, (weight, bias) = layers(theta)
    entering = [features]
    for hidden_weight, hidden_bias in hidden_layers:
        entering.append(torch.addmm(hidden_bias, entering[-1], hidden_weight.T).relu())
    return [*entering, torch.addmm(bias, entering[-1], weight.T)]


def example_gradients(theta: Tensor, features: Tensor, classes: Tensor) -> Tensor:
    """One gradient of the cross-entropy a row, by backpropagation.

    The gradient of a weight is the product of the error at the outputs of its layer and of what
    enters the layer.
    """
    *entering, outputs = forward(theta, features)
    error = outputs.softmax(dim=1) - nn.functional.one_hot(classes, outputs.shape[1])
    parts: list[Tensor] = []
    for (weight, _), values in zip(reversed(layers(theta)), reversed(entering), strict=True):
        parts += [error, (error[:, :, None] * values[:, None, :]).flatten(1)]
        error = error @ weight * (values > 0)
    return torch.cat(parts[::-1], dim=1)


def crafted_rows(canary: Any, inserted: Any) -> Tensor:
    """The canary's gradients before clipping, as float32."""
    return torch.as_tensor(canary.rows(inserted), dtype=torch.float32)


def gradients(theta: Tensor, step: int, canary: Any, inserted: Any) -> Tensor:
    """The gradients of a step before clipping: the batch, and the canary if it is inserted."""
    rows = example_gradients(theta, *batch(step))
    return torch.cat([rows, crafted_rows(canary, inserted)])


def clip(rows: Tensor, norm: float = CLIP) -> Tensor:
    """Every row shortened to ``norm`` at most; a row that is not a number contributes nothing."""
    norms = rows.norm(dim=1, keepdim=True)
    shorter = rows * (norm / norms.clamp(min=1e-12)).clamp(max=1.0)
    return torch.where(norms.isfinite(), shorter, 0.0)


def generator(seed: int) -> torch.Generator:
    """The source of a run's noise."""
    return torch.Generator().manual_seed(seed)


def noise(random: torch.Generator, deviation: float = SIGMA * CLIP) -> Tensor:
    """Gaussian noise for the sum of a batch, flat."""
    return deviation * torch.randn(PARAMETERS, generator=random)


def moved(theta: Tensor) -> np.ndarray:
    """What a training returns: how far the final parameters are from the public start."""
    return (theta - _start()).numpy().astype(np.float64)


def adversary_of(canary: Any, score: Scoring | None) -> Scoring | None:
    """Who scores what a training returns: the file's own score, the canary's, or dpaudit's."""
    if score is not None or isinstance(canary, GradientCanary):
        return score
    return type(canary).score


def show(
    train: Callable[..., Any],
    canary: Any,
    claim: Claim,
    score: Scoring | None = None,
    *,
    runs: int = 200,
) -> None:
    """Audit one training and print what was found."""
    adversary = adversary_of(canary, score)
    result = audit(train, canary=canary, claim=claim, adversary=adversary, runs=runs)
    print(result.summary())
