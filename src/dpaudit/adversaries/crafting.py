"""What several adversaries share: counting parameters, drawing, and reading what was released.

Adversaries are descriptions: they import torch only when they craft or score, so that commands can
name and check them without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import (
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateView,
    StandardView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD


def parameter_count(mechanism: DPSGD) -> int:
    """How many numbers the mechanism trains."""
    from dpaudit.engine.starting_points import known_model, trainable

    return sum(parameter.numel() for parameter in trainable(known_model(mechanism)))


def check_room(canaries: int, parameters: int) -> None:
    """Raise `InvalidInput` unless every canary can have a dimension of its own."""
    _validate.integer("canaries", canaries, at_least=1)
    if canaries > parameters:
        raise InvalidInput(
            f"canaries must be at most the number of parameters ({parameters}), got {canaries}; "
            "use fewer canaries and more runs"
        )


def generator(seed: int) -> np.random.Generator:
    """Numbers for crafting: a stream of its own, whatever else the same seed is used for."""
    return np.random.default_rng([_validate.integer("seed", seed), *b"craft"])


def movement(view: HiddenStateView) -> torch.Tensor:
    r"""Where each run went, shape (runs, parameters): :math:`\theta_T - \theta_0`.

    Where the start is unknown it is :math:`\theta_T` alone. Usual initialisations are symmetric
    around 0, so that the unknown :math:`\theta_0` only adds its own variance to the scores.
    """
    return view.final if view.initial is None else view.final - view.initial


def move_along_dimensions(view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
    """How far each run moved against the axis of each canary: descent subtracts gradients."""
    if not isinstance(canaries, CraftedDimensions):
        raise InvalidInput(
            f"canaries must be CraftedDimensions to be scored here, got {type(canaries).__name__}"
        )
    # The columns first: with many parameters and few canaries the difference is then small.
    dimensions = canaries.dimensions.to(view.final.device)
    moved = view.final[:, dimensions]
    return -moved if view.initial is None else view.initial[dimensions] - moved


def check_points(canaries: int, examples: int) -> None:
    """Raise `InvalidInput` unless every canary can be made of an example of its own."""
    _validate.integer("canaries", canaries, at_least=1)
    if canaries > examples:
        raise InvalidInput(
            f"canaries must be at most the number of examples ({examples}), got {canaries}"
        )


def the_points(canaries: Canaries) -> CanaryPoints:
    """The canaries, which must be data points."""
    if not isinstance(canaries, CanaryPoints):
        raise InvalidInput(
            f"canaries must be CanaryPoints to be scored here, got {type(canaries).__name__}"
        )
    return canaries


def insertion_steps(view: StandardView) -> list[int]:
    """The steps, of those that were played, at which a canary may have gone in."""
    return [step for step in range(len(view.iterates) - 1) if view.insertion.at(step)]


def released_sums(view: StandardView, steps: list[int]) -> torch.Tensor:
    r"""The noisy sums of ``steps``, added up, shape (runs, parameters).

    .. math:: \sum_t \frac{B}{\eta} ((1 - \eta\lambda) \theta_t - \theta_{t+1})

    Whoever sees the iterates sees each of them: learning rate and batch size are public.
    """
    mechanism, iterates = view.mechanism, view.iterates
    size = mechanism.batches.expected_size(len(mechanism.data))
    total = iterates.new_zeros(iterates.shape[1:])
    kept = 1 - mechanism.learning_rate * mechanism.weight_decay
    for step in steps:
        total = total + (kept * iterates[step] - iterates[step + 1])
    return total * (size / mechanism.learning_rate)


def along(canaries: Canaries, vectors: torch.Tensor) -> torch.Tensor:
    """The inner product of every vector (runs, parameters) with every crafted gradient."""
    if isinstance(canaries, CraftedDimensions):
        return canaries.norm * vectors[:, canaries.dimensions.to(vectors.device)]
    if isinstance(canaries, CraftedGradients):
        return vectors @ canaries.gradients.to(vectors).T
    raise InvalidInput(
        "canaries must be CraftedDimensions or CraftedGradients to be scored here, "
        f"got {type(canaries).__name__}"
    )
