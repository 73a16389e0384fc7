"""`FusedStep` with the arguments of an engine's step, checked against that step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dpaudit.engine.compilation import Verified
from dpaudit.engine.feeding import Feed
from dpaudit.engine.fused_step import FusedStep, fused_widths
from dpaudit.engine.inserting import Inserter
from dpaudit.engine.speed import Speed
from dpaudit.engine.training import Training
from dpaudit.errors import InvalidInput


def fused_training(
    training: Training,
    speed: Speed,
    feed: Feed,
    inserter: Inserter,
    *,
    participating: Callable[..., Tensor],
    slow: Callable[..., Tensor],
    tolerance: float,
) -> Verified:
    """A step as one C++ function.

    Raises `OSError` or `subprocess.SubprocessError` if there is no working C++ compiler.

    Arguments:
        training: The training.
        speed: Device and precision.
        feed: The examples.
        inserter: Inserts the canaries.
        participating: Multiplies coins by 0 where a canary does not participate in a step.
        slow: The same step without compilation.
        tolerance: Largest distance from ``slow``, relative to the length of the step.
    """
    widths = fused_widths(training.mechanism, speed, training.taps)
    if widths is None or speed.torch_device().type != "cpu":
        raise InvalidInput(
            "compile='fused' needs a small fully connected network trained by plain DP-SGD on "
            "a CPU; use compile='auto'"
        )
    kernel = FusedStep(widths)

    def step(
        current: Tensor,
        batch: Tensor,
        present: Tensor,
        draws: Tensor,
        coins: Tensor,
        runs: Tensor,
        number: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        coins = participating(coins, runs, number, key)
        features, targets, canaries = feed.features[batch], feed.targets[batch], None
        points = inserter.points
        if points is None:
            canaries = inserter.add(torch.zeros_like(current), coins)
            coins = coins[:, :0]
        else:
            features = torch.cat([features, feed.cast(points[0])])
            targets = torch.cat([targets, points[1]])
            present = torch.cat([present, present.new_ones(len(points[0]))])
        return kernel(
            current,
            features,
            targets,
            present,
            coins,
            canaries,
            runs,
            int(number),
            key,
            scalars,
            stream=training.stream,
            noisy=training.adds_noise,
        )

    return Verified(step, slow, _first_runs, tolerance=tolerance, name="the C++ compiler")


def _first_runs(count: int, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    state, batch, present, draws, coins, runs, *rest = given
    return (state[:count], batch, present, draws, coins[:count], runs[:count], *rest)
