"""What several adversaries share: drawing canaries, and how far a training moved.

Adversaries are descriptions. They import torch and the engine only when they craft or score, so
that commands can list and check them quickly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.final_model import start_weight
from dpaudit.threat_models import (
    Adversary,
    Canaries,
    CanaryPoints,
    ChoosesData,
    ChoosesStart,
    CraftedDimensions,
    HiddenStateView,
)

Kind = TypeVar("Kind", bound=Canaries)


def generator(seed: int) -> np.random.Generator:
    """Random numbers for crafting: a separate stream, whatever else uses the same seed."""
    return np.random.default_rng([_validate.integer("seed", seed), *b"craft"])


def check_room(canaries: int, room: int, what: str = "parameters") -> None:
    """Raise `InvalidInput` unless there is a different one of ``what`` for every canary."""
    _validate.integer("canaries", canaries, at_least=1)
    if canaries > room:
        raise InvalidInput(
            f"canaries must be at most the number of {what} ({room}), got {canaries}; "
            "use fewer canaries and more runs"
        )


def parameter_count(mechanism: DPSGD, *, canaries: int = 1) -> int:
    """Number of trained parameters; `InvalidInput` if that is less than ``canaries``."""
    from dpaudit.engine.starting_points import known_model, trainable

    parameters = sum(parameter.numel() for parameter in trainable(known_model(mechanism)))
    check_room(canaries, parameters)
    return parameters


def drawn_dimensions(mechanism: DPSGD, canaries: int, seed: int) -> CraftedDimensions:
    """Different dimensions drawn at random, each with a gradient of the full clip norm."""
    parameters = parameter_count(mechanism, canaries=canaries)
    chosen = generator(seed).choice(parameters, size=canaries, replace=False)
    return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)


def least_moved(mechanism: DPSGD, canaries: int, seed: int) -> torch.Tensor:
    """All dimensions by how far one noiseless simulation moved them, the least moved first."""
    from dpaudit.engine.simulation import simulate

    parameter_count(mechanism, canaries=canaries)
    return simulate(mechanism, noisy=False, runs=1, seed=seed).per_step.argsort(stable=True)


def audited_mechanism(adversary: Adversary, mechanism: DPSGD) -> DPSGD:
    """The mechanism that is audited: with what the adversary chooses of the training, if it may."""
    if not isinstance(adversary, ChoosesData | ChoosesStart):
        return mechanism
    from dpaudit.engine.starting_points import known_model

    chosen = adversary.prepare(mechanism)
    # Any other change would be an audit of a different mechanism.
    allowed = {name: getattr(chosen, name) for name in adversary.changes}
    if chosen != replace(mechanism, **allowed):
        raise InvalidInput(
            f"adversary {adversary.name!r} must change nothing of the mechanism but its "
            f"{' and '.join(adversary.changes)}"
        )
    if chosen.data.features.shape != mechanism.data.features.shape:
        raise InvalidInput(
            f"adversary {adversary.name!r} must keep the shape of the data, "
            f"{mechanism.data.features.shape}, got {chosen.data.features.shape}"
        )
    if str(known_model(chosen)) != str(known_model(mechanism)):
        raise InvalidInput(f"adversary {adversary.name!r} must keep the layers of the model")
    return chosen


def of_kind(canaries: Canaries, kind: type[Kind]) -> Kind:
    """The canaries, which must be of the kind that the adversary crafts."""
    if not isinstance(canaries, kind):
        raise InvalidInput(f"canaries must be {kind.__name__}, got {type(canaries).__name__}")
    return canaries


def the_points(canaries: Canaries) -> CanaryPoints:
    """The canaries as `CanaryPoints`."""
    return of_kind(canaries, CanaryPoints)


def movement(view: HiddenStateView) -> torch.Tensor:
    r"""The movement of each run, shape (runs, parameters): :math:`\theta_T - \theta_0`.

    Weight decay shrinks the start, which is taken into account. If the start is not public, the
    movement is :math:`\theta_T`. Usual initialisations are symmetric around
    0, so an unknown start only adds variance to the scores.
    """
    if view.initial is None:
        return view.final
    return view.final - start_weight(view.mechanism, view.steps) * view.initial


def move_along_dimensions(view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
    """How far each run moved against the axis of each canary: descent subtracts gradients.

    This is the score for every optimizer. With momentum, schedules and averaging the movement is
    still a linear function of the noisy gradients. With Adam each coordinate is scaled by its own
    gradients only, so the movement is all that the final model shows of the canary.
    """
    # Select the columns first: the difference of all parameters would be large.
    dimensions = of_kind(canaries, CraftedDimensions).dimensions.to(view.final.device)
    moved = view.final[:, dimensions]
    if view.initial is None:
        return -moved
    return start_weight(view.mechanism, view.steps) * view.initial[dimensions] - moved
