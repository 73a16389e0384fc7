"""What several adversaries share: counting parameters, drawing, and reading one dimension.

Adversaries are descriptions: they import torch only when they craft or score, so that commands can
name and check them without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit import _validate
from dpaudit.adversaries.contract import Canaries, CraftedDimensions, HiddenStateView
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD


def parameter_count(mechanism: DPSGD) -> int:
    """How many numbers the mechanism trains."""
    from dpaudit.games.starting_points import known_model, trainable

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
