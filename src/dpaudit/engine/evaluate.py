"""What adversaries compute for many models at once: outputs, losses and clipped gradients.

Plain `torch.func` without layer rules and without compilation: the examples are few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import torch
from torch import Tensor

from dpaudit.engine.speed import Precision, Speed
from dpaudit.engine.starting_points import known_model, trainable
from dpaudit.engine.training import Engine
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import CanaryPoints

_NUMBERS = 2**26
"""Gradients held at once, in numbers: 256 MiB of float32."""

_RUNS = 256
"""Models evaluated at once: the activations of all of them might not fit in memory."""

ModelFunction = Callable[[Tensor, Tensor], Tensor]


def losses(mechanism: DPSGD, parameters: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """The loss of every model on every example, shape (runs, examples).

    Parameters have shape (runs, parameters), features and targets (examples, …), or (runs,
    examples, …) for separate examples per model.
    """
    answer = model_function(mechanism, parameters)
    features, targets, own = _beside(mechanism, parameters, features, targets)

    def one_run(flat: Tensor, points: Tensor, labels: Tensor) -> Tensor:
        return mechanism.loss(answer(flat, points), labels)

    with torch.no_grad():
        values: Tensor = torch.func.vmap(one_run, in_dims=(0, own, own), chunk_size=_RUNS)(
            parameters, features, targets
        )
        return values


def outputs(mechanism: DPSGD, parameters: Tensor, features: Tensor) -> Tensor:
    """The output of every model for every example, shape (runs, examples, …)."""
    answer = model_function(mechanism, parameters)
    with torch.no_grad():
        answers: Tensor = torch.func.vmap(answer, in_dims=(0, None), chunk_size=_RUNS)(
            parameters, _like(parameters, features)
        )
        return answers


def clipped_gradients(
    mechanism: DPSGD,
    parameters: Tensor,
    features: Tensor,
    targets: Tensor,
    draws: Tensor | None = None,
) -> Tensor:
    r"""The contribution of each example to each model's sum, shape (runs, examples, parameters).

    .. math:: \mathrm{clip}(\nabla \ell(\theta_r; x), C)

    The gradients of all examples are in memory at once. Shapes are those of `losses`; ``draws``
    (examples, views, draws) are random numbers for augmented views, whose gradients are averaged
    before clipping. Without them an example is its only view.
    """
    features, targets, own = _beside(mechanism, parameters, features, targets)
    augmentation, axis = mechanism.augmentation, 0 if own is None else 1
    if augmentation is None or draws is None:
        views = features.unsqueeze(axis + 1)
    elif own is None:
        views = augmentation.apply(features, draws)
    else:
        several = draws.expand(len(features), *draws.shape).flatten(0, 1)
        views = augmentation.apply(features.flatten(0, 1), several)
        views = torch.unflatten(views, 0, features.shape[:2])
    one_run = torch.func.vmap(
        torch.func.grad(_mean_loss(mechanism, parameters)), in_dims=(None, 0, 0)
    )
    numbers = parameters.shape[1] * views.shape[axis] * views.shape[axis + 1]
    gradients: Tensor = torch.func.vmap(
        one_run, in_dims=(0, own, own), chunk_size=max(1, _NUMBERS // numbers)
    )(parameters, views, targets)
    norms = gradients.norm(dim=2, keepdim=True)
    factors: Tensor = mechanism.clipping.factor(norms, mechanism.clip_norm)
    return gradients * factors


def loss_slope(mechanism: DPSGD, parameters: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradient of several models' mean loss with respect to the points (examples, …)."""
    answer = model_function(mechanism, parameters)

    def total(features: Tensor) -> Tensor:
        given = torch.func.vmap(answer, in_dims=(0, None))(parameters, features)
        values = torch.func.vmap(mechanism.loss, in_dims=(0, None))(given, targets)
        mean: Tensor = values.mean(0).sum()
        return mean

    slope: Callable[[Tensor], Tensor] = torch.func.grad(total)
    return slope


def gradient_slope(
    mechanism: DPSGD,
    parameters: Tensor,
    targets: Tensor,
    worth: Callable[..., Tensor],
    *context: Tensor,
) -> Callable[[Tensor], Tensor]:
    r"""The gradient, with respect to a point, of an objective of the point's own gradient.

    .. math:: \nabla_x\, w\big(\nabla_\theta \ell(\theta_r; x, y)\big)

    The returned function takes points (runs, examples, …) and returns a gradient for each, by a
    double backward pass. ``worth`` takes an unclipped gradient (parameters,) and the run's part of
    ``context``, tensors with the run as their first axis.
    """
    loss = _mean_loss(mechanism, parameters)

    def value(point: Tensor, flat: Tensor, label: Tensor, *own: Tensor) -> Tensor:
        return worth(torch.func.grad(loss)(flat, point.unsqueeze(0), label), *own)

    shared = (None,) * len(context)
    one_run = torch.func.vmap(torch.func.grad(value), in_dims=(0, None, 0, *shared))

    def slope(features: Tensor) -> Tensor:
        slopes: Tensor = torch.func.vmap(one_run)(features, parameters, targets, *context)
        return slopes.detach()

    return slope


def repeated(points: CanaryPoints, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Features and targets with a leading axis of runs, on the device of ``parameters``."""
    runs, targets = len(parameters), points.targets.to(parameters.device)
    return (
        points.features.to(parameters).expand(runs, *points.features.shape),
        targets.expand(runs, *targets.shape),
    )


@final
class GenuineSums:
    """The clipped sums of the genuine examples along some iterates, shape (runs, parameters).

    Batches are public, so the standard threat model allows this. Step t starts from the t-th of the
    iterates, shape (steps + 1, runs, parameters).
    """

    def __init__(self, mechanism: DPSGD, iterates: Tensor) -> None:
        precision: Precision = "float64" if iterates.dtype == torch.float64 else "float32"
        self._iterates = iterates
        self._engine = Engine(
            mechanism,
            runs=iterates.shape[1],
            speed=Speed(device=str(iterates.device), precision=precision),
        )

    def __call__(self, step: int) -> Tensor:
        """The sum of one step."""
        return self._engine.genuine_sum(self._iterates[step], step)

    def total(self, weights: Mapping[int, float]) -> Tensor:
        """The sums of several steps, each times its weight, added up."""
        total = torch.zeros_like(self._iterates[0])
        for step, weight in weights.items():
            total += weight * self(step)
        return total


def model_function(mechanism: DPSGD, parameters: Tensor) -> ModelFunction:
    """The model's output as a function of flat parameters and features."""
    model = known_model(mechanism).to(parameters.device, parameters.dtype)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    shapes = [parameter.shape for parameter in trainable(model)]
    sizes = [shape.numel() for shape in shapes]

    def answer(flat: Tensor, features: Tensor) -> Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        outputs: Tensor = torch.func.functional_call(model, given, (features,))
        return outputs

    return answer


def _mean_loss(mechanism: DPSGD, parameters: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The mean loss of one example's views as a function of flat parameters, views and target."""
    answer = model_function(mechanism, parameters)

    def loss(flat: Tensor, views: Tensor, label: Tensor) -> Tensor:
        return mechanism.loss(answer(flat, views), label.expand(len(views), *label.shape)).mean()

    return loss


def _beside(
    mechanism: DPSGD, parameters: Tensor, features: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, int | None]:
    """Both on the device of ``parameters``; 0 if they have an axis of runs, otherwise `None`."""
    own = 0 if features.ndim > mechanism.data.features.ndim else None
    return _like(parameters, features), targets.to(parameters.device), own


def _like(parameters: Tensor, features: Tensor) -> Tensor:
    features = features.to(parameters.device)
    return features.to(parameters.dtype) if features.is_floating_point() else features
