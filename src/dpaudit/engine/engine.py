r"""Many DP-SGD trainings at once: one step for all runs of a tile.

.. math::
    \theta_r \leftarrow \theta_r - \frac{\eta}{B} \Big( \sum_b \mathrm{clip}(g_{rb}, C)
        + \text{canaries} + \sigma C \, Z_r \Big)

or the update of another optimizer with the same noisy sum.

Clipping, insertion, noise and update are one graph of fixed shapes. The slow twin is
`dpaudit.games.reference.play`, which also plays the rest of a game.
"""

from __future__ import annotations

import importlib.util
import math
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.clipping import ClippedSums
from dpaudit.engine.compilation import TOLERANCE, Traced, Verified
from dpaudit.engine.fused_step import FusedStep, fused_widths
from dpaudit.engine.inserting import SumInserter, inserter
from dpaudit.engine.noise import Stream
from dpaudit.engine.participation import participation
from dpaudit.engine.rules import rules
from dpaudit.engine.rules.block import with_blocks
from dpaudit.engine.schedule import schedule
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.engine.tapping import TappedModel, Taps
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.clipping import FlatClipping
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.optimizers import SGD
from dpaudit.mechanisms.schedules import ConstantRate
from dpaudit.threat_models import Canaries

Respond = Callable[[int, Tensor], Tensor]
"""A function of the step and the current parameters: what each run's canaries add to the sum, shape
(runs, canaries, parameters)."""

LARGE_LAYER = 2**14
"""Number of weights from which a convolution is faster in the vendor's library than as a batched
product on a GPU. On a CPU the library was always faster."""


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """A mechanism to train, with or without canaries, clipping and noise.

    Arguments:
        mechanism: The training.
        canaries: The canaries to insert, if any.
        insertion: The steps at which canaries are inserted.
        seed: Random seed of the noise and of Poisson participation.
        stream: The stream of the noise: that of the game, or that of adversaries' simulations.
        clipped: Whether gradients are clipped.
        noisy: Whether noise is added.
        taps: How the model is tapped, from `dpaudit.engine.mechanism_check`.
        respond: Computes the canaries of an adaptive adversary during training. It is called
            between compiled steps, before each step with an insertion.
    """

    mechanism: DPSGD
    canaries: Canaries | None = None
    insertion: Insertion = field(default_factory=Insertion)
    seed: int = 0
    stream: Stream = Stream.NOISE
    clipped: bool = True
    noisy: bool = True
    taps: Taps = field(default_factory=Taps)
    respond: Respond | None = None


@final
class Engine:
    """Trains ``runs`` models together, any number of times.

    Arguments:
        training: The training.
        runs: Number of models trained together; it fixes the shapes.
        speed: Device and precision.
        compiled: Whether to compile the step; ``"fused"`` takes `dpaudit.engine.fused_step`.
    """

    def __init__(
        self, training: Training, *, runs: int, speed: Speed, compiled: bool | Literal["fused"]
    ) -> None:
        mechanism, device = training.mechanism, speed.torch_device()
        self._training, self._device, self._dtype = training, device, speed.dtype
        self._runs = runs
        template = known_model(mechanism).to(device, speed.product_dtype)
        convolutions = fastest_convolutions(template, runs, speed)
        joined = template
        if convolutions == "triton" and not training.taps.per_example:
            few = as_tensor(mechanism.data.features[:2]).to(device, speed.product_dtype)
            joined = with_blocks(template, few)
        model = TappedModel(joined, rules(convolutions=convolutions), training.taps)
        self.parameters = model.parameters
        self._plan = schedule(mechanism.batches, mechanism.steps, len(mechanism.data))
        self._chunk = min(speed.virtual_batch or self._plan.width, self._plan.width)
        self._batches = _chunked(torch.from_numpy(self._plan.batches), self._chunk).to(device)
        present = _chunked(torch.from_numpy(self._plan.present), self._chunk)
        self._present = present.to(device, self._dtype)
        self._virtual = self._chunk < self._plan.width
        if training.respond is None:
            self._inserter = inserter(training.canaries, model.parameters, self._dtype, device)
        else:
            self._inserter = SumInserter()
        self._count = 0 if training.canaries is None else training.canaries.count
        self._memory = 0 if mechanism.correlation is None else mechanism.correlation.memory
        self._slots = mechanism.optimizer.slots + self._memory + (mechanism.averaging is not None)
        self._product_dtype = speed.product_dtype
        self._features = self._cast(as_tensor(mechanism.data.features).to(device))
        self._targets = self._precise(as_tensor(mechanism.data.targets).to(device))
        values = [p.detach() for p in trainable(template)]
        points, draws = self._inserter.points, self._draws(0)
        first = self._genuine(self._batches[0, 0], draws[: self._chunk])[0]
        if points is not None and not self._virtual:
            first = torch.cat([first, self._viewed(self._cast(points[0]), draws[self._chunk :])])
        self._clipped_sums = self._sums_of(model, values, first)
        self._point_sums: ClippedSums | None = None
        if points is not None and self._virtual:
            after = draws[self._batches[0].numel() :]
            features = self._viewed(self._cast(points[0]), after)
            self._point_sums = self._sums_of(model, values, features)
        tolerance = TOLERANCE[speed.precision]
        self._model_notices = model.notices
        self._partial: Traced | None = None
        if compiled == "fused":
            try:
                self._step: Traced | Verified = self._fused_step(speed, tolerance)
                return
            except (OSError, subprocess.SubprocessError) as error:
                self._model_notices += (f"no fused step, so this will be slower: {error}",)
        compiled = bool(compiled)
        function: Callable[..., Tensor] = self._one_step
        example = self._example()
        if self._virtual:
            function, example, part = self._last_part, *self._virtual_examples(example)
            self._partial = Traced(self._partial_sums, part, compiled=compiled, tolerance=tolerance)
        self._step = Traced(function, example, compiled=compiled, tolerance=tolerance)

    def _fused_step(self, speed: Speed, tolerance: float) -> Verified:
        """The step of `dpaudit.engine.fused_step`, checked against the uncompiled step."""
        training = self._training
        widths = fused_widths(training.mechanism, speed, training.taps)
        if widths is None or self._device.type != "cpu":
            raise InvalidInput(
                "compile='fused' needs a small fully connected network trained by plain DP-SGD on "
                "a CPU; use compile='auto'"
            )
        kernel = FusedStep(widths)
        noisy = training.noisy and training.mechanism.noise_multiplier > 0
        genuine = self._plan.width

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
            coins = self._participating(coins, runs, number, key)
            features, targets, canaries = self._features[batch], self._targets[batch], None
            points = self._inserter.points
            if points is None:
                canaries = self._inserter.add(torch.zeros_like(current), coins)
                coins = coins[:, :0]
            else:
                features = torch.cat([features, self._cast(points[0])])
                targets = torch.cat([targets, points[1]])
                present = torch.cat([present, present.new_ones(len(features) - genuine)])
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
                noisy=noisy,
            )

        def rows(count: int, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            state, batch, present, draws, coins, runs, *rest = given
            return (state[:count], batch, present, draws, coins[:count], runs[:count], *rest)

        return Verified(step, self._one_step, rows, tolerance=tolerance, name="the C++ compiler")

    def _sums_of(self, model: TappedModel, values: list[Tensor], features: Tensor) -> ClippedSums:
        mechanism, training = self._training.mechanism, self._training
        # A simulation without clipping has an infinite clip norm, which needs flat clipping.
        clipping = mechanism.clipping if training.clipped else FlatClipping()
        calls = model.measure(values, features)
        return ClippedSums(model, mechanism.loss, calls, clipping, self._views)

    @property
    def _views(self) -> int:
        augmentation = self._training.mechanism.augmentation
        return 1 if augmentation is None else augmentation.views

    @property
    def releases_gil(self) -> bool:
        """Whether Python threads can play shares of a tile at the same time, of any size."""
        return isinstance(self._step, Verified)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user: layers without a rule, failed compilation."""
        return self._model_notices + self._step.notices

    def play(self, start: Tensor, runs: Tensor, coins: Tensor) -> Iterator[Tensor]:
        """The parameters (runs, parameters) after each step. Arguments as for `states`."""
        return (self.parameters_in(state) for state in self.states(start, runs, coins))

    def parameters_in(self, state: Tensor) -> Tensor:
        """The parameters (runs, parameters) in a state."""
        return state[0] if self._slots else state

    def released_in(self, state: Tensor) -> Tensor:
        """The model that a training would release: the average of iterates, if there is one."""
        averaged = self._training.mechanism.averaging is not None
        return state[-1] if averaged else self.parameters_in(state)

    def states(self, start: Tensor, runs: Tensor, coins: Tensor) -> Iterator[Tensor]:
        """The state after each step: the parameters, the optimizer's state and the average.

        Arguments:
            start: The initial parameters, shape (runs, parameters).
            runs: The numbers of the runs, shape (runs,), int64.
            coins: 1 where the canary is inserted, shape (runs, canaries).
        """
        mechanism, device = self._training.mechanism, self._device
        state = self._first_state(start.to(device, self._dtype))
        runs, coins = runs.to(device), coins.to(device, self._dtype)
        key = noise.key(self._training.seed, device)
        scalars = self._scalars()
        steps = torch.arange(mechanism.steps, device=device)
        active = torch.tensor(
            [float(self._training.insertion.at(step)) for step in range(mechanism.steps)],
            dtype=self._dtype,
        ).to(device)
        for step in range(mechanism.steps):
            batch = int(self._plan.at[step])
            entering = self._entering(self.parameters_in(state), coins, runs, step) * active[step]
            draws = self._draws(step)
            rest = (entering, runs, steps[step], key, scalars[step])
            if self._partial is None:
                state = self._step(
                    state, self._batches[batch, 0], self._present[batch, 0], draws, *rest
                )
            else:
                total = self._all_parts(self.parameters_in(state), batch, draws, scalars[step])
                state = self._step(state, total, draws[self._batches[0].numel() :], *rest)
            yield state

    def _all_parts(self, current: Tensor, batch: int, draws: Tensor, scalars: Tensor) -> Tensor:
        """The clipped sum of a batch, one virtual batch after the other."""
        part = self._partial_sums if self._partial is None else self._partial
        total = torch.zeros_like(current)
        for number, chunk in enumerate(self._batches[batch]):
            own = draws[number * self._chunk : (number + 1) * self._chunk]
            total = total + part(current, chunk, self._present[batch, number], own, scalars)
        return total

    def genuine_sum(self, current: Tensor, step: int) -> Tensor:
        """The clipped sum of ``step``'s genuine examples at ``current``, (runs, parameters)."""
        clip_norm = self._training.mechanism.clip_norm
        scalars = torch.tensor([0.0, clip_norm], dtype=self._dtype, device=self._device)
        with torch.no_grad():
            batch = int(self._plan.at[step])
            return self._all_parts(current, batch, self._draws(step), scalars)

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
            coins = coins * participation(key, runs, when.to(runs), self._count, rate)
        added = training.respond(step, current).to(self._dtype)
        return torch.einsum("rc,rcp->rp", coins, added)

    def _first_state(self, start: Tensor) -> Tensor:
        if not self._slots:
            return start
        slots = [torch.zeros_like(start)] * (
            self._training.mechanism.optimizer.slots + self._memory
        )
        average = [] if self._training.mechanism.averaging is None else [start]
        return torch.stack([start, *slots, *average])

    def _scalars(self) -> Tensor:
        """For each step what may change without compiling again, shape (steps, 6).

        The learning rate over the batch size, the clip norm, the noise, the factor of weight decay,
        the learning rate, and one over the batch size.
        """
        mechanism = self._training.mechanism
        size = mechanism.batches.expected_size(len(mechanism.data))
        clip_norm = mechanism.clip_norm if self._training.clipped else float("inf")
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        constant = isinstance(mechanism.schedule, ConstantRate)
        rates = [mechanism.rate(step) for step in range(1 if constant else mechanism.steps)]
        rows = [
            [rate / size, clip_norm, spread, 1 - rate * mechanism.weight_decay, rate, 1 / size]
            for rate in rates
        ]
        scalars = torch.tensor(rows, dtype=self._dtype, device=self._device)
        return scalars.expand(mechanism.steps, -1)

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
        features, targets = self._genuine(batch, draws[: self._chunk])
        weights = present.expand(len(current), -1)
        if self._inserter.points is not None:
            more, labels = self._inserter.points
            points = self._viewed(self._cast(more), draws[self._chunk :])
            features = torch.cat([features, points])
            targets = torch.cat([targets, self._precise(labels)])
            weights = torch.cat([weights, coins], dim=1)
        sums = self._clipped_sums(
            current.to(self._product_dtype), features, targets, weights, scalars[1]
        ).to(self._dtype)
        return self._next(state, self._inserter.add(sums, coins), runs, step, key, scalars)

    def _partial_sums(
        self, current: Tensor, batch: Tensor, present: Tensor, draws: Tensor, scalars: Tensor
    ) -> Tensor:
        """The clipped sum of the genuine examples of one virtual batch."""
        features, targets = self._genuine(batch, draws)
        weights = present.expand(len(current), -1)
        return self._clipped_sums(
            current.to(self._product_dtype), features, targets, weights, scalars[1]
        ).to(self._dtype)

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
            more, labels = self._inserter.points
            sums = sums + self._point_sums(
                self.parameters_in(state).to(self._product_dtype),
                self._viewed(self._cast(more), draws),
                self._precise(labels),
                coins,
                scalars[1],
            ).to(self._dtype)
        return self._next(state, self._inserter.add(sums, coins), runs, step, key, scalars)

    def _participating(self, coins: Tensor, runs: Tensor, step: Tensor, key: Tensor) -> Tensor:
        """The coins of the canaries that participate in this step."""
        training, rate = self._training, self._training.mechanism.sampling_rate
        if rate is None or not self._count or training.respond is not None:
            return coins
        return coins * participation(key, runs, step, self._count, rate)

    def _next(
        self,
        state: Tensor,
        update: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        """The state after adding noise to the sum ``update``."""
        training, current, spread = self._training, self.parameters_in(state), scalars[2]
        past: tuple[Tensor, ...] = ()
        if training.noisy and training.mechanism.noise_multiplier > 0:
            fresh = noise.normals(key, training.stream, runs, step, self.parameters, self._dtype)
            if training.mechanism.correlation is not None:
                first = 1 + training.mechanism.optimizer.slots
                past = tuple(state[first : first + self._memory])
                fresh = training.mechanism.correlation.next(fresh, past)
                past = (fresh, *past)[: self._memory]
            update = update + spread * fresh
        if training.mechanism.weight_decay:
            current = current * scalars[3]
        if not self._slots and isinstance(training.mechanism.optimizer, SGD):
            return current - scalars[0] * update
        return self._updated(current, update * scalars[5], state, past, step, scalars[4])

    def _updated(
        self,
        current: Tensor,
        gradient: Tensor,
        state: Tensor,
        past: tuple[Tensor, ...],
        step: Tensor,
        rate: Tensor,
    ) -> Tensor:
        """The next state by the optimizer, the noise ``past`` to remember, and the averaging."""
        mechanism, count = self._training.mechanism, (step + 1).to(self._dtype)
        slots = tuple(state[1 : 1 + mechanism.optimizer.slots])
        current, slots = mechanism.optimizer.step(current, gradient, slots, rate=rate, count=count)
        # Without noise there is nothing to remember, and the zeros stay.
        slots = (*slots, *(past or [torch.zeros_like(current)] * self._memory))
        if mechanism.averaging is not None:
            slots = (*slots, mechanism.averaging.update(state[-1], current, count=count))
        return torch.stack([current, *slots]) if self._slots else current

    def _genuine(self, batch: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        return self._viewed(self._features[batch], draws), self._targets[batch]

    def _viewed(self, features: Tensor, draws: Tensor) -> Tensor:
        """The views of every example, one after the other."""
        augmentation = self._training.mechanism.augmentation
        return (
            features if augmentation is None else augmentation.apply(features, draws).flatten(0, 1)
        )

    def _draws(self, step: int) -> Tensor:
        """Random numbers for the views of all examples and canaries; empty without augmentation."""
        width = self._plan.width
        draws = view_draws(self._training.mechanism, step, width + self._count)
        if not len(draws):
            return draws.to(self._device)
        padding = draws.new_zeros(self._batches[0].numel() - width, *draws.shape[1:])
        return torch.cat([draws[:width], padding, draws[width:]]).to(self._device)

    def _precise(self, targets: Tensor) -> Tensor:
        """Real targets keep the precision of the parameters also in half-precision passes."""
        return targets.to(self._dtype) if targets.is_floating_point() else targets

    def _cast(self, features: Tensor) -> Tensor:
        return features.to(self._product_dtype) if features.is_floating_point() else features

    def _virtual_examples(
        self, example: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Arguments of `_last_part` and of `_partial_sums`, from those of `_one_step`."""
        state, batch, present, draws, *rest = example
        current = self.parameters_in(state)
        last = (state, torch.zeros_like(current), draws[self._batches[0].numel() :], *rest)
        return last, (current, batch, present, draws[: self._chunk], rest[-1])

    def _entries(self) -> int:
        return self._count if self._training.respond is None else self.parameters

    def _example(self) -> tuple[Tensor, ...]:
        device, runs = self._device, self._runs
        return (
            self._first_state(torch.zeros(runs, self.parameters, dtype=self._dtype, device=device)),
            self._batches[0, 0],
            self._present[0, 0],
            self._draws(0),
            torch.zeros(runs, self._entries(), dtype=self._dtype, device=device),
            torch.arange(runs, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
            noise.key(0, device),
            self._scalars()[0],
        )


def view_draws(mechanism: DPSGD, step: int, count: int) -> Tensor:
    """Public random numbers for the views of ``count`` examples, (examples, views, draws)."""
    augmentation = mechanism.augmentation
    if augmentation is None:
        return torch.zeros(0)
    shape = (count, augmentation.views, augmentation.draws)
    start, when = torch.zeros(1, dtype=torch.int64), torch.tensor(step)
    numbers = math.prod(shape)
    return noise.uniforms(noise.key(0), Stream.AUGMENTATION, start, when, numbers).view(shape)


def _chunked(rows: Tensor, size: int) -> Tensor:
    """(batches, width) to (batches, chunks, size), padded with zeros."""
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % size))
    return torch.unflatten(padded, 1, (-1, size))


def fastest_convolutions(
    model: torch.nn.Module, runs: int, speed: Speed
) -> Literal["library", "product", "triton"]:
    """How to compute the convolutions of ``model``, if ``speed`` leaves it open."""
    if speed.convolutions != "auto":
        return speed.convolutions
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d)
    layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
    largest = max((layer.weight.numel() for layer in layers), default=0)
    if speed.torch_device().type != "cuda" or runs == 1 or largest >= LARGE_LAYER:
        return "library"
    rounded = speed.precision in ("tf32", "bfloat16")
    return "triton" if rounded and importlib.util.find_spec("triton") else "product"
