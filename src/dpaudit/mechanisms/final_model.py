r"""What the released model shows of the start and of each step.

With SGD the released model is a linear function of the noisy gradients, whatever the momentum, the
schedule, the weight decay and the averaging. If genuine gradients do not react to the canary, this
function decides how far apart the scores with and without the canary are. Adam is nearly linear if
the noise is much larger than the gradients: the root of the mean square is then about constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpaudit._arrays import Array
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.optimizers import SGD, Adam, Optimizer


def start_weight(mechanism: DPSGD, steps: int) -> float:
    """The share of the start in the model after ``steps``: below 1 with weight decay, else 1."""
    if not mechanism.weight_decay:
        return 1.0
    current = average = 1.0
    for step in range(steps):
        current *= 1 - mechanism.rate(step) * mechanism.weight_decay
        if mechanism.averaging is not None:
            average = mechanism.averaging.update(average, current, count=step + 1)
    return current if mechanism.averaging is None else average


def gradient_weights(mechanism: DPSGD, *, steps: int | None = None) -> Array | None:
    """The weight of the noisy gradient of each step in the released model, shape (steps,).

    For Adam the root of the mean square is taken as 1. `None` for an unknown optimizer. The
    training stops after ``steps``; by default after all.

    Example:
        >>> from dataclasses import replace
        >>> from dpaudit.mechanisms import UniformAverage
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training(steps=4, learning_rate=1.0)
        >>> gradient_weights(replace(training, averaging=UniformAverage())).tolist()
        [1.0, 0.75, 0.5, 0.25]
    """
    optimizer, averaging = mechanism.optimizer, mechanism.averaging
    if not isinstance(optimizer, SGD | Adam):
        return None
    # One step is a linear map of the parameters, the velocity, the average and the gradient. From
    # the last step back to the first we follow how the released model depends on the first three.
    parameters, velocity, average, gradient = np.eye(4)
    shown = np.array([1.0, 0.0, 0.0]) if averaging is None else np.array([0.0, 0.0, 1.0])
    weights = np.empty(mechanism.steps if steps is None else steps)
    for step in reversed(range(len(weights))):
        rate = mechanism.rate(step)
        shrunk = (1 - rate * mechanism.weight_decay) * parameters
        moved, velocity_then = _linear_step(
            optimizer, shrunk, gradient, velocity, rate=rate, count=step + 1
        )
        averaged = average
        if averaging is not None:
            averaged = averaging.update(average, moved, count=step + 1)
        row = shown @ np.stack([moved, velocity_then, averaged])
        shown, weights[step] = row[:3], -row[3]
    return weights


def noise_of_weighted_sum(mechanism: DPSGD, weights: Array) -> float:
    r"""Standard deviation of the noise of all steps with weights, :math:`|C^{-\top} w|`.

    It is in units of the noise of one step. For independent noise it is :math:`|w|`.
    """
    if mechanism.correlation is None:
        return float(np.linalg.norm(weights))
    return mechanism.correlation.spread_of_sum(weights)


def noise_of_released_model(mechanism: DPSGD, insertion: Insertion) -> float | None:
    r"""The noise multiplier at which a plain sum of the steps shows as much as this training.

    The canary moves the released model by :math:`\sum_{t \in U} w_t`, where :math:`w` are the
    `gradient_weights` and :math:`U` the insertion steps, against noise of
    :math:`\sigma |C^{-\top} w|`. A sum of all :math:`T` steps has :math:`n` insertions against
    noise of :math:`\sigma' \sqrt T`.

    Example:
        >>> from dataclasses import replace
        >>> from dpaudit.mechanisms import UniformAverage
        >>> from dpaudit.presets import preset
        >>> training = replace(preset("housing").training(), averaging=UniformAverage())
        >>> round(noise_of_released_model(training, Insertion()), 3)  # about 4 times 2 / sqrt 3
        4.614
    """
    if mechanism.further_settings().keys() <= {"clipping", "augmentation"}:
        return mechanism.noise_multiplier  # all steps have the same weight
    weights = gradient_weights(mechanism)
    if weights is None:
        return None
    used = [step for step in range(mechanism.steps) if insertion.at(step)]
    spread = noise_of_weighted_sum(mechanism, weights)
    share = len(used) * spread / (weights[used].sum() * np.sqrt(mechanism.steps))
    return float(mechanism.noise_multiplier * share)


def _linear_step(
    optimizer: Optimizer, parameters: Any, gradient: Any, velocity: Any, *, rate: float, count: int
) -> tuple[Any, Any]:
    """The new parameters and velocity; Adam without the root of the mean square."""
    if isinstance(optimizer, Adam):
        mean = optimizer.beta1 * velocity + (1 - optimizer.beta1) * gradient
        return parameters - rate * mean / (1 - optimizer.beta1**count), mean
    moved, state = optimizer.step(parameters, gradient, (velocity,), rate=rate, count=count)
    return moved, state[0] if state else velocity
