r"""Noisy sums recovered from the iterates of any optimizer, for the standard threat model.

The iterates, the learning rates and the optimizer are public. SGD, with or without momentum, is
inverted exactly. Adam divides by the root of a mean of squares, so a common factor of all gradients
of a coordinate cannot be seen; it is chosen such that the recovered gradients have the size of the
noise and, if they are known, of the genuine gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dpaudit._torch import torch
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.optimizers import SGD, Adam
from dpaudit.threat_models import StandardView

if TYPE_CHECKING:
    Genuine = Callable[[int], torch.Tensor]

_ROUNDS = 6  # of the fixed-point iteration for one step of Adam; the error shrinks tenfold in each
_EARLY = 10  # steps in which that iteration is damped
_FARTHEST = 8.0  # standard deviations of the noise


def noisy_sums(view: StandardView, genuine: Genuine | None = None) -> Iterator[torch.Tensor]:
    """The noisy sum of every step, shape (runs, parameters).

    Arguments:
        view: The iterates.
        genuine: The genuine part of the sum of a step, if known; it improves the scale for Adam.
    """
    mechanism = view.mechanism
    size = mechanism.batches.expected_size(len(mechanism.data))
    directions = _directions(view, size)
    match mechanism.optimizer:
        case SGD(momentum=momentum, nesterov=nesterov):
            return _from_momentum(directions, momentum, nesterov) if momentum else directions
        case Adam():
            return _from_adam(view, mechanism.optimizer, size, genuine)
        case other:
            raise InvalidInput(f"optimizer must be SGD or Adam for this adversary, got {other!r}")


def _directions(view: StandardView, size: float) -> Iterator[torch.Tensor]:
    """The change of every step, times the batch size and divided by the learning rate."""
    mechanism, iterates = view.mechanism, view.iterates
    for step in range(len(iterates) - 1):
        rate = mechanism.rate(step)
        if not rate:
            raise InvalidInput(
                "the learning rate must be above 0 in every step for this adversary, got 0 in "
                f"step {step}; use a schedule whose factor is above 0"
            )
        kept = 1 - rate * mechanism.weight_decay
        yield (kept * iterates[step] - iterates[step + 1]) * (size / rate)


def _from_momentum(
    directions: Iterator[torch.Tensor], momentum: float, nesterov: bool
) -> Iterator[torch.Tensor]:
    velocity: torch.Tensor | float = 0.0
    for direction in directions:
        if nesterov:
            gradient = (direction - momentum**2 * velocity) / (1 + momentum)
        else:
            gradient = direction - momentum * velocity
        velocity = momentum * velocity + gradient
        yield gradient


def _from_adam(
    view: StandardView, optimizer: Adam, size: float, genuine: Genuine | None
) -> Iterator[torch.Tensor]:
    # Without noise, the size of one clipped gradient.
    noise = (view.mechanism.noise_multiplier or 1.0) * view.mechanism.clip_norm
    mean = torch.zeros_like(view.iterates[0], dtype=torch.float64)
    square, recovered = mean.clone(), []
    for count, direction in enumerate(_directions(view, 1.0), start=1):
        gradient = _adam_gradient(direction.double(), mean, square, optimizer, count, noise, size)
        mean = optimizer.beta1 * mean + (1 - optimizer.beta1) * gradient
        square = optimizer.beta2 * square + (1 - optimizer.beta2) * gradient.square()
        recovered.append(gradient)
    expected = torch.full_like(mean, noise**2)
    if genuine is not None:
        for step in range(len(recovered)):
            expected += genuine(step).double().square() / len(recovered)
    found = torch.stack(recovered).square().mean(0)
    scale = (expected / found.clamp(min=1e-300)).sqrt()
    return ((gradient * scale).to(view.iterates.dtype) for gradient in recovered)


def _adam_gradient(
    direction: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    optimizer: Adam,
    count: int,
    noise: float,
    batch: float,
) -> torch.Tensor:
    """The noisy sum that changes ``mean`` and ``square`` such that the step is ``direction``."""
    if count == 1:
        return direction * noise  # the first step shows only the sign
    first, second = 1 - optimizer.beta1**count, 1 - optimizer.beta2**count
    damping = 0.5 if count < _EARLY else 1.0
    gradient = torch.zeros_like(direction)
    for _ in range(_ROUNDS):
        squares = optimizer.beta2 * square + (1 - optimizer.beta2) * gradient.square()
        size = (squares / second).sqrt() + optimizer.epsilon * batch
        target = (direction * size * first - optimizer.beta1 * mean) / (1 - optimizer.beta1)
        limit = _FARTHEST * torch.maximum(square.div(second).sqrt(), torch.tensor(noise))
        gradient = (gradient + damping * (target - gradient)).clamp(-limit, limit)
    return gradient
