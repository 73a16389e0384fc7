"""`FusedSteps` for the training of an engine, checked against the engine's slow step."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from dpaudit.engine import noise
from dpaudit.engine.comparing import Comparison, Verified
from dpaudit.engine.feeding import Feed
from dpaudit.engine.fused_step import FusedSteps, fused_widths
from dpaudit.engine.inserting import Inserter
from dpaudit.engine.speed import Speed
from dpaudit.engine.training import Training
from dpaudit.engine.updating import Updates
from dpaudit.errors import InvalidInput

_MOST_STEPS = 64
"""Steps in one call, during which the process does not react to signals."""


@final
class FusedTraining:
    """Steps of a training as one C++ function, compared with the slow step at first.

    Raises `OSError` or `subprocess.SubprocessError` if there is no working C++ compiler.

    Arguments:
        training: The training.
        speed: Device and precision.
        feed: The examples.
        inserter: Inserts the canaries.
        updates: Knows the scalars of every step.
        participating: Multiplies coins by 0 where a canary does not participate in a step.
        slow: The same step without compilation.
        comparison: How the step is compared with ``slow``.
    """

    def __init__(
        self,
        training: Training,
        speed: Speed,
        feed: Feed,
        inserter: Inserter,
        updates: Updates,
        *,
        participating: Callable[..., Tensor],
        slow: Callable[..., Tensor],
        comparison: Comparison,
    ) -> None:
        widths = fused_widths(training.mechanism, speed, training.taps)
        device = speed.torch_device()
        if widths is None or device.type != "cpu":
            raise InvalidInput(
                "compile='fused' needs a small fully connected network trained by plain DP-SGD on "
                "a CPU; use compile='auto'"
            )
        self._inserter, self._participating = inserter, participating
        # Otherwise coins or canaries change from step to step.
        self._alike = training.respond is None and training.mechanism.sampling_rate is None
        (batches, present, batch_at), points = feed.whole_batches(), inserter.points
        features, targets = feed.features, feed.targets
        if points is not None:
            numbers = len(features) + torch.arange(len(points[0]))
            batches = torch.cat([batches, numbers.expand(len(batches), -1)], dim=1)
            present = nn.functional.pad(present, (0, len(numbers)), value=1.0)
            features = torch.cat([features, feed.cast(points[0])])
            targets = torch.cat([targets, points[1]])
        inserted = [float(training.insertion.at(step)) for step in range(len(batch_at))]
        self._kernel = FusedSteps(
            widths,
            features=features,
            targets=targets,
            batches=batches,
            present=present,
            batch_at=batch_at,
            inserted_at=torch.tensor(inserted),
            scalars=updates.scalars(device)[:, :4],
            key=noise.key(training.seed),
            stream=training.stream,
            noisy=training.adds_noise,
        )
        self.step = Verified(
            self._one_step,
            slow,
            _rows,
            comparison=comparison,
            name="the C++ compiler",
        )

    def advance(
        self, current: Tensor, coins: Tensor, runs: Tensor, *, first: int, last: int
    ) -> tuple[Tensor, int] | None:
        """The parameters after several steps from ``first`` on, and the number of steps done.

        `None` if the next step must be made by itself, by ``step``.
        """
        if not (self._alike and self.step.trusted):
            return None
        last = min(last, first + _MOST_STEPS)
        return self._play(current, coins, runs, first, last), last

    def _one_step(
        self,
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
        """A step with the arguments of an engine's step, whose tables the function has already."""
        coins, first = self._participating(coins, runs, number, key), int(number)
        quiet = not float(scalars[2])
        return self._play(current, coins, runs, first, first + 1, quiet=quiet)

    def _play(
        self,
        current: Tensor,
        coins: Tensor,
        runs: Tensor,
        first: int,
        last: int,
        *,
        quiet: bool = False,
    ) -> Tensor:
        canaries = None
        if self._inserter.points is None:
            canaries = self._inserter.add(torch.zeros_like(current), coins)
            coins = coins[:, :0]
        return self._kernel(current, coins, canaries, runs, first=first, last=last, quiet=quiet)


def _rows(some: slice, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    state, batch, present, draws, coins, runs, *rest = given
    return (state[some], batch, present, draws, coins[some], runs[some], *rest)
