"""The slow twin of the engine: one model, one plain loop, float64, one backward pass per example.

Nothing is shared with the fast path but the random words, so that the two can be compared.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from dpaudit.adversaries.contract import (
    AdaptedPoints,
    AdaptiveAdversary,
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
    Moment,
)
from dpaudit.games import noise
from dpaudit.games.clipping import Loss
from dpaudit.games.coins import insertion_coins, participation
from dpaudit.games.game import Game
from dpaudit.games.noise import Stream
from dpaudit.games.starting_points import as_tensor, initial_parameters, known_model, trainable


def clipped_sum(
    model: torch.nn.Module,
    loss: Loss,
    features: Tensor,
    targets: Tensor,
    *,
    clip_norm: float,
    weights: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The clipped sum of one model, flat.

    Arguments:
        model: Any module; it is copied, and its parameters say where the gradients are taken.
        loss: One loss per example.
        features: Shape (examples, …).
        targets: Shape (examples,).
        clip_norm: C; infinity clips nothing.
        weights: A factor for each example after clipping, all 1 by default.
        dtype: To compute in.
    """
    model = copy.deepcopy(model).to(dtype)
    features = features.to(dtype) if features.is_floating_point() else features
    total: Tensor | None = None
    for index in range(len(targets)):
        gradient = _gradient(model, loss, features[index : index + 1], targets[index : index + 1])
        norm = float(gradient.norm())
        factor = 1.0 if norm <= clip_norm else clip_norm / norm
        if weights is not None:
            factor *= float(weights[index])
        total = factor * gradient if total is None else total + factor * gradient
    if total is None:
        return torch.zeros(sum(p.numel() for p in trainable(model)), dtype=dtype)
    return total


def _gradient(model: torch.nn.Module, loss: Loss, features: Tensor, targets: Tensor) -> Tensor:
    losses = loss(model(features), targets)
    gradients = torch.autograd.grad(losses.sum(), trainable(model), allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(parameter).flatten() if gradient is None else gradient.flatten()
            for gradient, parameter in zip(gradients, trainable(model), strict=True)
        ]
    )


def play(game: Game, run: int, steps: int | None = None) -> Tensor:
    """All iterates of one run of ``game`` in float64, shape (steps + 1, parameters).

    Same coins, batches and random words as the engine's; everything else is written anew.

    Arguments:
        game: What to play.
        run: The number of the run.
        steps: Stop after so many steps; by default at the last horizon.
    """
    mechanism, count = game.mechanism, game.canaries.count
    number = torch.tensor([run])
    start = initial_parameters(mechanism, seed=game.seed, runs=number, dtype=torch.float64)[0]
    model = known_model(mechanism).double()
    coins = insertion_coins(seed=game.seed, runs=game.runs, canaries=count, coin=game.coin)[
        run
    ].double()
    features, targets = as_tensor(mechanism.data.features), as_tensor(mechanism.data.targets)
    size = mechanism.batches.expected_size(len(mechanism.data))
    key = noise.key(game.seed)
    iterates = [start]
    for step in range(game.horizons[-1] if steps is None else steps):
        when = torch.tensor(step)
        batch = torch.from_numpy(mechanism.batches.indices(step, len(mechanism.data)))
        present = coins * float(game.insertion.at(step))
        if mechanism.sampling_rate is not None:
            present *= participation(key, number, when, count, mechanism.sampling_rate)[0]
        inputs, labels, weights = features[batch], targets[batch], torch.ones(len(batch))
        canaries = _entering(game, step, iterates[-1])
        if isinstance(canaries, CanaryPoints):
            inputs = torch.cat([inputs, canaries.features.to(inputs.dtype)])
            labels, weights = torch.cat([labels, canaries.targets]), torch.cat([weights, present])
        _load(model, iterates[-1])
        total = clipped_sum(
            model,
            mechanism.loss,
            inputs,
            labels,
            clip_norm=mechanism.clip_norm,
            weights=weights,
        )
        # The canaries one by one, as Algorithm 1 has it.
        for canary, coin in enumerate(present.tolist()):
            if isinstance(canaries, CraftedDimensions):
                total[canaries.dimensions[canary]] += coin * canaries.norm
            elif isinstance(canaries, CraftedGradients):
                total += coin * canaries.gradients[canary].double()
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        draws = noise.normals(key, Stream.NOISE, number, when, len(total), torch.float64)[0]
        iterates.append(iterates[-1] - mechanism.learning_rate / size * (total + spread * draws))
    return torch.stack(iterates)


def _entering(game: Game, step: int, current: Tensor) -> Canaries:
    """The canaries of this step; an adaptive adversary has others at each."""
    if not isinstance(game.adversary, AdaptiveAdversary):
        return game.canaries
    moment = Moment(mechanism=game.mechanism, step=step, current=current.unsqueeze(0))
    response = game.adversary.respond(moment, game.canaries)
    if isinstance(response, AdaptedPoints):
        return CanaryPoints(features=response.features[0], targets=response.targets[0])
    return CraftedGradients(gradients=response.gradients[0])


def _load(model: torch.nn.Module, flat: Tensor) -> None:
    first = 0
    for parameter in trainable(model):
        parameter.data = flat[first : first + parameter.numel()].view(parameter.shape).clone()
        first += parameter.numel()
