"""What several adversaries share: drawing canaries, and reading what a training released.

Adversaries are descriptions. They import torch and the engine only when they craft or score, so
that commands can list and check them quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.inversion import noisy_sums
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.optimizers import SGD
from dpaudit.mechanisms.schedules import ConstantRate
from dpaudit.threat_models import (
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateView,
    StandardView,
)

if TYPE_CHECKING:
    from dpaudit.adversaries.inversion import Genuine


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


def drawn_indices(mechanism: DPSGD, canaries: int, random: np.random.Generator) -> np.ndarray:
    """The indices of different training examples drawn at random."""
    check_room(canaries, len(mechanism.data), "examples")
    return random.choice(len(mechanism.data), size=canaries, replace=False)


def drawn_points(mechanism: DPSGD, canaries: int, seed: int) -> CanaryPoints:
    """Different training examples drawn at random, with their own targets."""
    chosen = drawn_indices(mechanism, canaries, generator(seed))
    data = mechanism.data
    return CanaryPoints(
        features=torch.from_numpy(data.features[chosen]),
        targets=torch.from_numpy(data.targets[chosen]),
    )


def wrong_targets(
    mechanism: DPSGD, chosen: np.ndarray, random: np.random.Generator, adversary: str
) -> np.ndarray:
    """Wrong targets for the training examples ``chosen``.

    A random other class for each label or token; for regression, for each output the end of its
    range that is farther from the true target.
    """
    data = mechanism.data
    targets: np.ndarray = data.targets[chosen]
    if data.classes is not None:
        shift = random.integers(1, data.classes, size=targets.shape)
        return np.asarray((targets + shift) % data.classes)
    if not targets.size:
        raise InvalidInput(f"data must have targets for {adversary}, got {data!r}")
    low, high = data.targets.min(axis=0), data.targets.max(axis=0)
    return np.asarray(np.where(targets - low > high - targets, low, high))


def require_real_features(mechanism: DPSGD, adversary: str) -> None:
    """Raise `InvalidInput` if the features are tokens, which cannot be moved a little."""
    if mechanism.data.features.dtype != np.float32:
        raise InvalidInput(f"features must be real numbers for {adversary}, got tokens")


def the_points(canaries: Canaries) -> CanaryPoints:
    """The canaries as `CanaryPoints`; `InvalidInput` for another kind."""
    if not isinstance(canaries, CanaryPoints):
        raise _wrong_kind(canaries, "CanaryPoints")
    return canaries


def the_gradients(canaries: Canaries) -> CraftedGradients:
    """The canaries as `CraftedGradients`; `InvalidInput` for another kind."""
    if not isinstance(canaries, CraftedGradients):
        raise _wrong_kind(canaries, "CraftedGradients")
    return canaries


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
    if not isinstance(canaries, CraftedDimensions):
        raise _wrong_kind(canaries, "CraftedDimensions")
    # Select the columns first: the difference of all parameters would be large.
    dimensions = canaries.dimensions.to(view.final.device)
    moved = view.final[:, dimensions]
    if view.initial is None:
        return -moved
    return start_weight(view.mechanism, view.steps) * view.initial[dimensions] - moved


def start_weight(mechanism: DPSGD, steps: int) -> float:
    """The share of the start in the released model: below 1 with weight decay, else 1."""
    if not mechanism.weight_decay:
        return 1.0
    current = average = 1.0
    for step in range(steps):
        current *= 1 - mechanism.rate(step) * mechanism.weight_decay
        if mechanism.averaging is not None:
            average = mechanism.averaging.update(average, current, count=step + 1)
    return current if mechanism.averaging is None else average


def insertion_steps(view: StandardView) -> list[int]:
    """The played steps at which a canary may have been inserted."""
    return [step for step in range(len(view.iterates) - 1) if view.insertion.at(step)]


def step_weights(view: StandardView) -> dict[int, float]:
    """The weight of each step's noisy sum in the score of a canary in the insertion steps.

    Independent noise: 1 for insertion steps. Correlated noise: the weights of the whitened sums.
    """
    used, correlation = insertion_steps(view), view.mechanism.correlation
    if correlation is None:
        return dict.fromkeys(used, 1.0)
    weights = correlation.weights(used, steps=len(view.iterates) - 1)
    return dict(enumerate(weights.tolist()))


def released_sums(
    view: StandardView, weights: Mapping[int, float], genuine: Genuine | None = None
) -> torch.Tensor:
    r"""The noisy sums of the steps in ``weights``, added up, shape (runs, parameters).

    For plain DP-SGD they are :math:`\sum_t \frac{B}{\eta} ((1 - \eta\lambda) \theta_t -
    \theta_{t+1})`. Other optimizers are inverted by `dpaudit.adversaries.inversion`, which needs
    only what is public in the standard threat model.

    Arguments:
        view: The iterates.
        weights: The weight of each step, from `step_weights`.
        genuine: The genuine part of the sum of a step, if known.
    """
    mechanism, iterates = view.mechanism, view.iterates
    total = iterates.new_zeros(iterates.shape[1:])
    if not (mechanism.optimizer == SGD() and mechanism.schedule == ConstantRate()):
        for step, noisy in enumerate(noisy_sums(view, genuine)):
            total += weights[step] * noisy if step in weights else 0
        return total
    size = mechanism.batches.expected_size(len(mechanism.data))
    kept = 1 - mechanism.learning_rate * mechanism.weight_decay
    for step, weight in weights.items():
        total = total + weight * (kept * iterates[step] - iterates[step + 1])
    return total * (size / mechanism.learning_rate)


def along(canaries: Canaries, vectors: torch.Tensor) -> torch.Tensor:
    """The inner product of every vector (runs, parameters) with every crafted gradient."""
    if isinstance(canaries, CraftedDimensions):
        return canaries.norm * vectors[:, canaries.dimensions.to(vectors.device)]
    if isinstance(canaries, CraftedGradients):
        return vectors @ canaries.gradients.to(vectors).T
    raise _wrong_kind(canaries, "CraftedDimensions or CraftedGradients")


def released_along(view: StandardView, canaries: Canaries) -> torch.Tensor:
    """The inner products of the crafted gradients with the noisy sums of the insertion steps."""
    return along(canaries, released_sums(view, step_weights(view)))


def _wrong_kind(canaries: Canaries, expected: str) -> InvalidInput:
    return InvalidInput(f"canaries must be {expected}, got {type(canaries).__name__}")
