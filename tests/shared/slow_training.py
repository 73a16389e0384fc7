"""The slow twin of engine and games: one model, float64, a plain loop, a pass for each example.

It shares only the random words with the fast path, so that the two can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.noise import Stream
from dpaudit.engine.reference import clipped_sum
from dpaudit.engine.starting_points import as_tensor, initial_parameters, known_model, trainable
from dpaudit.engine.training import participation, view_draws
from dpaudit.games.coins import insertion_coins
from dpaudit.games.game import Game
from dpaudit.mechanisms.augmentation import FlipAndShift
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.optimizers import SGD, Adam, ExponentialAverage, UniformAverage
from dpaudit.threat_models import (
    AdaptedPoints,
    AdaptiveAdversary,
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
    Moment,
)


def play(game: Game, run: int, steps: int | None = None) -> Tensor:
    """All iterates of one run of ``game`` in float64, shape (steps + 1, parameters).

    Coins, batches and random words are those of the engine; everything else is separate code.

    Arguments:
        game: The game to play.
        run: The number of the run.
        steps: Number of steps; by default up to the last horizon.
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
    iterates, parameter = [start], torch.nn.Parameter(start.clone())
    independent: list[Tensor] = []
    optimizer = _torch_optimizer(mechanism, parameter)
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
        views = 1 if mechanism.augmentation is None else mechanism.augmentation.views
        width = max(len(mechanism.batches.indices(t, len(targets))) for t in range(mechanism.steps))
        inputs = _viewed(mechanism, inputs, step, width, len(batch))
        _load(model, iterates[-1])
        total = clipped_sum(
            model,
            mechanism.loss,
            inputs,
            labels,
            clip_norm=mechanism.clip_norm,
            clipping=mechanism.clipping,
            weights=weights,
            views=views,
        )
        # The canaries one by one, as in Algorithm 1.
        for canary, coin in enumerate(present.tolist()):
            if isinstance(canaries, CraftedDimensions):
                total[canaries.dimensions[canary]] += coin * canaries.norm
            elif isinstance(canaries, CraftedGradients):
                total += coin * canaries.gradients[canary].double()
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        draws = noise.normals(key, Stream.NOISE, number, when, len(total), torch.float64)[0]
        independent.append(draws)
        if mechanism.correlation is not None:  # the last row of C^-1 Z
            strategy = torch.from_numpy(mechanism.correlation.matrix(len(independent)))
            draws = torch.linalg.solve(strategy, torch.stack(independent))[-1]
        parameter.data *= 1 - mechanism.rate(step) * mechanism.weight_decay
        optimizer.param_groups[0]["lr"] = mechanism.rate(step)
        parameter.grad = (total + spread * draws) / size
        optimizer.step()
        iterates.append(parameter.detach().clone())
    return torch.stack(iterates)


def released(game: Game, run: int) -> Tensor:
    """The model that one run releases: its last iterate, or the average of its iterates."""
    iterates, averaging = play(game, run), game.mechanism.averaging
    match averaging:
        case None:
            return iterates[-1]
        case UniformAverage():
            return iterates[1:].mean(0)
        case ExponentialAverage():
            age = torch.arange(len(iterates) - 1, -1, -1, dtype=torch.float64)
            weights = (1 - averaging.decay) * averaging.decay**age
            weights[0] = averaging.decay ** age[0]
            return weights @ iterates
        case _:
            raise NotImplementedError(f"no slow twin of {averaging!r}")


def _viewed(mechanism: DPSGD, inputs: Tensor, step: int, width: int, genuine: int) -> Tensor:
    """The views of every example, cut out one by one; canaries come after the widest batch."""
    augmentation = mechanism.augmentation
    if augmentation is None:
        return inputs
    if not isinstance(augmentation, FlipAndShift):
        raise NotImplementedError(f"no slow twin of {augmentation!r}")
    draws = view_draws(mechanism, step, width + len(inputs) - genuine)
    padding, (height, length) = augmentation.padding, inputs.shape[2:]
    rows = []
    for number, image in enumerate(inputs):
        place = number if number < genuine else width + number - genuine
        padded = torch.nn.functional.pad(image[None], (padding,) * 4, mode="reflect")[0]
        for down, across, turn in draws[place].tolist():
            top, left = int(down * (2 * padding + 1)), int(across * (2 * padding + 1))
            view = padded[:, top : top + height, left : left + length]
            rows.append(view.flip(2) if turn < 0.5 else view)
    return torch.unflatten(torch.stack(rows), 0, (len(inputs), -1))


def _torch_optimizer(mechanism: DPSGD, parameter: torch.nn.Parameter) -> torch.optim.Optimizer:
    match mechanism.optimizer:
        case SGD(momentum=momentum, nesterov=nesterov):
            return torch.optim.SGD([parameter], momentum=momentum, nesterov=nesterov)
        case Adam(beta1=beta1, beta2=beta2, epsilon=epsilon):
            return torch.optim.Adam([parameter], betas=(beta1, beta2), eps=epsilon)
        case other:
            raise NotImplementedError(f"no slow twin of {other!r}")


def _entering(game: Game, step: int, current: Tensor) -> Canaries:
    """The canaries of this step; those of an adaptive adversary change at each step."""
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
