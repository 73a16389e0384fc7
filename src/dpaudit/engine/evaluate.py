"""What adversaries compute of many models at once: answers, losses and clipped gradients.

Plain `torch.func`, without rules and without compilation: these are few examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dpaudit.engine.engine import Engine, Training
from dpaudit.engine.mechanism_check import check_mechanism
from dpaudit.engine.speed import Precision, Speed
from dpaudit.engine.starting_points import known_model, trainable
from dpaudit.mechanisms.dpsgd import DPSGD

_NUMBERS = 2**26
"""Gradients held at once, in numbers: 256 MiB of float32."""

Answer = Callable[[Tensor, Tensor], Tensor]


def losses(mechanism: DPSGD, parameters: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """The loss of every model on every example, shape (runs, examples).

    Arguments:
        mechanism: What was trained: its model and its loss.
        parameters: One model in each row, shape (runs, parameters).
        features: Shape (examples, …), or (runs, examples, …) where each model has its own.
        targets: Shape (examples,), or (runs, examples).
    """
    answer = _answer(mechanism, parameters)
    features, targets = _beside(parameters, features), targets.to(parameters.device)
    own = 0 if targets.ndim == 2 else None

    def one_run(flat: Tensor, points: Tensor, labels: Tensor) -> Tensor:
        return mechanism.loss(answer(flat, points), labels)

    with torch.no_grad():
        # A chunk of runs at a time: a ResNet's activations for all of them would not fit.
        found: Tensor = torch.func.vmap(one_run, in_dims=(0, own, own), chunk_size=256)(
            parameters, features, targets
        )
        return found


def outputs(mechanism: DPSGD, parameters: Tensor, features: Tensor) -> Tensor:
    """What every model returns for every example, shape (runs, examples, …)."""
    answer = _answer(mechanism, parameters)
    with torch.no_grad():
        found: Tensor = torch.func.vmap(answer, in_dims=(0, None), chunk_size=256)(
            parameters, _beside(parameters, features)
        )
        return found


def clipped_gradients(
    mechanism: DPSGD, parameters: Tensor, features: Tensor, targets: Tensor
) -> Tensor:
    r"""What each example would add to the sum of each model, shape (runs, examples, parameters).

    .. math:: \mathrm{clip}(\nabla \ell(\theta_r; x), C)

    Arguments as for `losses`. A gradient for every (run, example) is held: few examples at a time.
    """
    answer = _answer(mechanism, parameters)
    features, targets = _beside(parameters, features), targets.to(parameters.device)
    own = 0 if targets.ndim == 2 else None

    def one(flat: Tensor, point: Tensor, label: Tensor) -> Tensor:
        return mechanism.loss(answer(flat, point.unsqueeze(0)), label.unsqueeze(0)).sum()

    one_run = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))
    held = parameters.shape[1] * targets.shape[-1]
    gradients: Tensor = torch.func.vmap(
        one_run, in_dims=(0, own, own), chunk_size=max(1, _NUMBERS // held)
    )(parameters, features, targets)
    norms = gradients.norm(dim=2, keepdim=True)
    # C / 0 is infinite and the minimum 1: a zero gradient stays what it is.
    return gradients * torch.clamp(mechanism.clip_norm / norms, max=1.0)


def loss_slope(mechanism: DPSGD, parameters: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    """How the mean loss of several models changes with the points, of shape (examples, …)."""
    answer = _answer(mechanism, parameters)

    def total(features: Tensor) -> Tensor:
        given = torch.func.vmap(answer, in_dims=(0, None))(parameters, features)
        found = torch.func.vmap(mechanism.loss, in_dims=(0, None))(given, targets)
        mean: Tensor = found.mean(0).sum()
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
    r"""How the worth of a point's gradient changes with the point: a double backward pass.

    .. math:: \nabla_x\, w\big(\nabla_\theta \ell(\theta_r; x, y)\big)

    Arguments:
        mechanism: What is trained.
        parameters: Shape (runs, parameters).
        targets: Shape (runs, examples).
        worth: From a gradient (parameters,), unclipped, and what ``context`` holds for its run, to
            a number.
        context: Tensors with the run as their first axis.

    The function that comes back takes points (runs, examples, …) and gives a slope for each.
    """
    answer = _answer(mechanism, parameters)

    def loss(flat: Tensor, point: Tensor, label: Tensor) -> Tensor:
        return mechanism.loss(answer(flat, point.unsqueeze(0)), label.unsqueeze(0)).sum()

    def value(point: Tensor, flat: Tensor, label: Tensor, *own: Tensor) -> Tensor:
        return worth(torch.func.grad(loss)(flat, point, label), *own)

    shared = (None,) * len(context)
    one_run = torch.func.vmap(torch.func.grad(value), in_dims=(0, None, 0, *shared))

    def slope(features: Tensor) -> Tensor:
        found: Tensor = torch.func.vmap(one_run)(features, parameters, targets, *context)
        return found.detach()

    return slope


def genuine_sum(mechanism: DPSGD, iterates: Tensor, steps: Sequence[int]) -> Tensor:
    """What the genuine examples of ``steps`` added up to, shape (runs, parameters).

    Batches are public, so whoever sees the iterates can compute it.

    Arguments:
        mechanism: What was trained.
        iterates: Shape (steps + 1, runs, parameters); step t started from the t-th.
        steps: Which steps to add up.
    """
    precision: Precision = "float64" if iterates.dtype == torch.float64 else "float32"
    engine = Engine(
        Training(mechanism=mechanism, whole=check_mechanism(mechanism).whole),
        runs=iterates.shape[1],
        speed=Speed(device=str(iterates.device), precision=precision),
        compiled=False,
    )
    total = torch.zeros_like(iterates[0])
    for step in steps:
        total += engine.genuine_sum(iterates[step], step)
    return total


def _answer(mechanism: DPSGD, parameters: Tensor) -> Answer:
    """From flat parameters and features to what the model returns."""
    model = known_model(mechanism).to(parameters.device, parameters.dtype)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    shapes = [parameter.shape for parameter in trainable(model)]
    sizes = [parameter.numel() for parameter in trainable(model)]

    def answer(flat: Tensor, features: Tensor) -> Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        found: Tensor = torch.func.functional_call(model, given, (features,))
        return found

    return answer


def _beside(parameters: Tensor, features: Tensor) -> Tensor:
    features = features.to(parameters.device)
    return features.to(parameters.dtype) if features.is_floating_point() else features
