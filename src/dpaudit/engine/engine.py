r"""Many DP-SGD trainings at once: one step for all runs of a tile.

.. math::
    \theta_r \leftarrow \theta_r - \frac{\eta}{B} \Big( \sum_b \mathrm{clip}(g_{rb}, C)
        + \text{canaries} + \sigma C \, Z_r \Big)

or the update of another optimizer with the same noisy sum.

Clipping, insertion, noise and update are one graph of fixed shapes. The slow twin is
`dpaudit.games.reference.play`, which also plays the rest of a game.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from typing import Literal, final

import torch
from torch import Tensor

from dpaudit.engine import block_kernels, noise
from dpaudit.engine.clipping import ClippedSums
from dpaudit.engine.comparing import SUM_TOLERANCE, TOLERANCE, Comparison, Verified
from dpaudit.engine.compilation import WORTH_TRACING, Traced
from dpaudit.engine.feeding import Feed
from dpaudit.engine.fused_step import is_plain_network
from dpaudit.engine.fused_training import FusedTraining
from dpaudit.engine.inserting import SumInserter, inserter
from dpaudit.engine.participation import participation
from dpaudit.engine.rules import rules
from dpaudit.engine.rules.block import with_blocks
from dpaudit.engine.speed import ROUNDED, Speed
from dpaudit.engine.starting_points import known_model, trainable
from dpaudit.engine.tapping import TappedModel
from dpaudit.engine.training import Training
from dpaudit.engine.updating import Updates
from dpaudit.mechanisms.clipping import FlatClipping

LARGE_LAYER = 2**14
"""Number of weights from which a convolution is faster in the vendor's library than as a batched
product on a GPU. On a CPU the library was always faster."""


@final
class Engine:
    """Trains ``runs`` models together, any number of times.

    Arguments:
        training: The training.
        runs: Number of models trained together; it fixes the shapes.
        speed: Device and precision.
        compiled: Whether to compile the step; ``"fused"`` takes `dpaudit.engine.fused_step`.
        times: How often the models will be trained. With few steps in all, tracing is not
            worthwhile.
    """

    def __init__(
        self,
        training: Training,
        *,
        runs: int,
        speed: Speed,
        compiled: bool | Literal["fused"],
        times: int = 1,
    ) -> None:
        mechanism, device = training.mechanism, speed.torch_device()
        self._training, self._device = training, device
        self._dtype = speed.dtype
        self._feed = Feed(mechanism, training.canary_count, speed)
        template = known_model(mechanism).to(device, speed.product_dtype)
        convolutions, joined = fastest_convolutions(template, runs, speed), template
        if convolutions == "kernels" and not training.taps.per_example:
            joined = with_blocks(template, self._feed.features[:2])
        model = TappedModel(joined, rules(convolutions=convolutions), training.taps)
        self.parameters = model.parameters
        self._model_notices = model.notices
        self._updates = Updates(training, model.parameters, speed.dtype)
        if training.respond is None:
            self._inserter = inserter(training.canaries, model.parameters, speed.dtype, device)
        else:
            self._inserter = SumInserter()
        self._plain = is_plain_network(template, mechanism.loss)
        values = [parameter.detach() for parameter in trainable(template)]
        self._tensors = tuple(value.numel() for value in values)
        self._measure(model, values)
        # One run of a plain network is fast without tracing.
        alone = self._plain and runs == 1 and device.type == "cpu"
        self._build_step(speed, compiled, 0 if alone else times * mechanism.steps)

    def _measure(self, model: TappedModel, values: list[Tensor]) -> None:
        """The functions for clipped sums, for the shapes of the first batch and of the canaries."""
        feed, mechanism = self._feed, self._training.mechanism
        # A simulation without clipping has an infinite clip norm, which needs flat clipping.
        clipping = mechanism.clipping if self._training.clipped else FlatClipping()
        views = 1 if mechanism.augmentation is None else mechanism.augmentation.views

        def sums_of(features: Tensor) -> ClippedSums:
            calls = model.measure(values, features)
            return ClippedSums(
                model,
                mechanism.loss,
                calls,
                clipping,
                views,
                plain=self._plain,
                dtype=values[0].dtype,
            )

        draws, points = feed.draws(0), self._inserter.points
        first, _ = feed.examples(feed.batch(0)[0][0], draws[: feed.size])
        canaries = None if points is None else feed.points(points, draws[feed.padded_width :])[0]
        if canaries is not None and not feed.virtual:
            first = torch.cat([first, canaries])
        self._clipped_sums = sums_of(first)
        self._point_sums = sums_of(canaries) if canaries is not None and feed.virtual else None

    def _build_step(self, speed: Speed, compiled: bool | Literal["fused"], calls: int) -> None:
        sum_tolerance = SUM_TOLERANCE[speed.precision]
        comparison = Comparison(
            tolerance=TOLERANCE[speed.precision],
            sum_tolerance=sum_tolerance,
            tensors=self._tensors,
            quiet=self._updates.quiet(),
        )
        self._partial: Traced | None = None
        self._fused: FusedTraining | None = None
        if compiled == "fused":
            try:
                self._fused = FusedTraining(
                    self._training,
                    speed,
                    self._feed,
                    self._inserter,
                    self._updates,
                    participating=self._participating,
                    slow=self._one_step,
                    comparison=comparison,
                )
                self._step: Traced | Verified = self._fused.step
                return
            except (OSError, subprocess.SubprocessError) as error:
                self._model_notices += (f"no fused step, so this will be slower: {error}",)

        # On a GPU the graph leaves out operations, so its bits may differ from the function's.
        traceable = calls if self._device.type == "cpu" else WORTH_TRACING
        if self._feed.virtual:
            self._partial = Traced(
                self._partial_sums,
                compiled=bool(compiled),
                calls=traceable * len(self._feed.batch(0)[0]),
                comparison=Comparison(tolerance=sum_tolerance, tensors=self._tensors, moves=False),
            )
        self._step = Traced(
            self._last_part if self._feed.virtual else self._one_step,
            compiled=bool(compiled),
            calls=traceable,
            comparison=comparison,
        )

    @property
    def releases_gil(self) -> bool:
        """Whether Python threads can play shares of a tile at the same time, of any size."""
        return self._fused is not None

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user: layers without a rule, failed compilation."""
        partial = () if self._partial is None else self._partial.notices
        return self._model_notices + partial + self._step.notices

    def play(self, start: Tensor, runs: Tensor, coins: Tensor) -> Iterator[Tensor]:
        """The parameters (runs, parameters) after each step. Arguments as for `states`."""
        return (self.parameters_in(state) for state in self.states(start, runs, coins))

    def parameters_in(self, state: Tensor) -> Tensor:
        """The parameters (runs, parameters) in a state."""
        return self._updates.parameters_in(state)

    def released_in(self, state: Tensor) -> Tensor:
        """The model that a training would release: the average of iterates, if there is one."""
        return self._updates.released_in(state)

    def states(
        self, start: Tensor, runs: Tensor, coins: Tensor, after: Sequence[int] | None = None
    ) -> Iterator[Tensor]:
        """The state after each step: the parameters, the optimizer's state and the average.

        Arguments:
            start: The initial parameters, shape (runs, parameters).
            runs: The numbers of the runs, shape (runs,), int64.
            coins: 1 where the canary is inserted, shape (runs, canaries).
            after: Increasing numbers of steps after which the state is given; by default all.
        """
        feed, device = self._feed, self._device
        state = self._updates.first(start.to(device, self._dtype))
        runs, coins = runs.to(device), coins.to(device, self._dtype)
        key = noise.key(self._training.seed, device)
        scalars = self._updates.scalars(device)
        steps = torch.arange(self._training.mechanism.steps, device=device)
        insertions = [float(self._training.insertion.at(step)) for step in range(len(steps))]
        active = torch.tensor(insertions, dtype=self._dtype).to(device)
        step = 0
        for stop in range(1, len(steps) + 1) if after is None else after:
            while step < stop:
                if self._fused is not None:
                    made = self._fused.advance(state, coins, runs, first=step, last=stop)
                    if made is not None:
                        state, step = made
                        continue
                current = self.parameters_in(state)
                entering = self._entering(current, coins, runs, step) * active[step]
                draws = feed.draws(step)
                rest = (entering, runs, steps[step], key, scalars[step])
                if self._partial is None:
                    batches, present = feed.batch(step)
                    state = self._step(state, batches[0], present[0], draws, *rest)
                else:
                    total = self._all_parts(current, step, draws, scalars[step])
                    state = self._step(state, total, draws[feed.padded_width :], *rest)
                step += 1
            yield state

    def genuine_sum(self, current: Tensor, step: int) -> Tensor:
        """The clipped sum of ``step``'s genuine examples at ``current``, (runs, parameters)."""
        clip_norm = self._training.mechanism.clip_norm
        scalars = torch.tensor([0.0, clip_norm], dtype=self._dtype, device=self._device)
        with torch.no_grad():
            return self._all_parts(current, step, self._feed.draws(step), scalars)

    def _all_parts(self, current: Tensor, step: int, draws: Tensor, scalars: Tensor) -> Tensor:
        """The clipped sum of a batch, one virtual batch after the other."""
        part = self._partial_sums if self._partial is None else self._partial
        total, size = torch.zeros_like(current), self._feed.size
        for number, (batch, present) in enumerate(zip(*self._feed.batch(step), strict=True)):
            own = draws[number * size : (number + 1) * size]
            total = total + part(current, batch, present, own, scalars)
        return total

    def _entering(self, current: Tensor, coins: Tensor, runs: Tensor, step: int) -> Tensor:
        """The coins (runs, canaries); for an adaptive adversary its whole sum (runs, parameters).

        Adaptive canaries depend on the iterate, so they are computed between compiled steps.
        """
        training = self._training
        if training.respond is None:
            return coins
        if not training.insertion.at(step):
            return torch.zeros_like(current)
        rate = training.mechanism.sampling_rate
        if rate is not None:
            key, when = noise.key(training.seed, self._device), torch.tensor(step)
            coins = coins * participation(key, runs, when.to(runs), training.canary_count, rate)
        added = training.respond(step, current).to(self._dtype)
        return torch.einsum("rc,rcp->rp", coins, added)

    def _one_step(
        self,
        state: Tensor,
        batch: Tensor,
        present: Tensor,
        draws: Tensor,
        coins: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        """A step on a whole batch."""
        current = self.parameters_in(state)
        coins = self._participating(coins, runs, step, key)
        features, targets = self._feed.examples(batch, draws[: self._feed.size])
        weights = present.expand(len(current), -1)
        if self._inserter.points is not None:
            more = self._feed.points(self._inserter.points, draws[self._feed.size :])
            features, targets = torch.cat([features, more[0]]), torch.cat([targets, more[1]])
            weights = torch.cat([weights, coins], dim=1)
        sums = self._sums(self._clipped_sums, current, features, targets, weights, scalars)
        return self._updates.next(state, self._inserter.add(sums, coins), runs, step, key, scalars)

    def _partial_sums(
        self, current: Tensor, batch: Tensor, present: Tensor, draws: Tensor, scalars: Tensor
    ) -> Tensor:
        """The clipped sum of the genuine examples of one virtual batch."""
        features, targets = self._feed.examples(batch, draws)
        weights = present.expand(len(current), -1)
        return self._sums(self._clipped_sums, current, features, targets, weights, scalars)

    def _last_part(
        self,
        state: Tensor,
        sums: Tensor,
        draws: Tensor,
        coins: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        """The rest of a step whose genuine ``sums`` come from virtual batches."""
        coins = self._participating(coins, runs, step, key)
        if self._point_sums is not None and self._inserter.points is not None:
            current = self.parameters_in(state)
            points = self._feed.points(self._inserter.points, draws)
            sums = sums + self._sums(self._point_sums, current, *points, coins, scalars)
        return self._updates.next(state, self._inserter.add(sums, coins), runs, step, key, scalars)

    def _sums(
        self,
        clipped_sums: ClippedSums,
        current: Tensor,
        features: Tensor,
        targets: Tensor,
        weights: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        return clipped_sums(current, features, targets, weights, scalars[1]).to(self._dtype)

    def _participating(self, coins: Tensor, runs: Tensor, step: Tensor, key: Tensor) -> Tensor:
        """The coins of the canaries that participate in this step."""
        training, rate = self._training, self._training.mechanism.sampling_rate
        if rate is None or not training.canary_count or training.respond is not None:
            return coins
        return coins * participation(key, runs, step, training.canary_count, rate)


def fastest_convolutions(
    model: torch.nn.Module, runs: int, speed: Speed
) -> Literal["library", "product", "kernels"]:
    """How to compute the convolutions of ``model``, if ``speed`` leaves it open."""
    if speed.convolutions != "auto":
        return speed.convolutions
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d)
    layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
    largest = max((layer.weight.numel() for layer in layers), default=0)
    if speed.torch_device().type != "cuda" or runs == 1 or largest >= LARGE_LAYER:
        return "library"
    rounds = speed.precision in ROUNDED
    return "kernels" if rounds and block_kernels.usable() else "product"
