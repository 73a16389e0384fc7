r"""Many DP-SGD trainings at once: two pure functions, ``sums`` and ``update``, and one loop.

.. math::
    \theta_r \leftarrow \theta_r - \frac{\eta}{B} \Big( \sum_b \mathrm{clip}(g_{rb}, C)
        + \text{canaries} + \sigma C \, Z_r \Big)

or the update of another optimizer with the same noisy sum.

A state has shape (1 + slots, runs, parameters): the parameters, the optimizer's state, past noise
that later noise is correlated with, and the average of the iterates. Canaries that are examples are
rows behind the data and columns behind every batch, with their coins as weights. A step without the
canary runs the same code as a step with it.

All shapes are fixed, so a step is one graph; where a batch has several parts, the sum of a part is
one graph and the update another. The slow twin is ``tests/shared/slow_training.py``, which also
plays the rest of a game.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dpaudit.engine import noise
from dpaudit.engine.checking import check_mechanism
from dpaudit.engine.clipped_sums import ClippedSums, Taps
from dpaudit.engine.compiling import (
    SUM_TOLERANCE,
    UPDATE_TOLERANCE,
    WORTH_TRACING,
    Compiled,
    Results,
    sum_distance,
    update_distance,
)
from dpaudit.engine.fused import FusedSteps, fused_widths
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.noise import Stream
from dpaudit.engine.speed import ROUNDED, Speed
from dpaudit.engine.starting_points import as_tensor, known_model
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.batches import BatchPlan
from dpaudit.mechanisms.clipping import FlatClipping
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.optimizers import ConstantRate
from dpaudit.threat_models import Canaries, CanaryPoints, CraftedDimensions, CraftedGradients

Respond = Callable[[int, Tensor], Tensor]
"""A function of the step and the current parameters: what each run's canaries add to the sum, shape
(runs, canaries, parameters)."""

LARGE_LAYER = 2**14
"""Number of weights from which a convolution is faster in the vendor's library than as a batched
product on a GPU. On a CPU the library was always faster."""

MOST_FUSED_STEPS = 64
"""Steps in one call of the fused step, during which the process does not react to signals."""

_DRAWS_AT_ONCE = 2**20
"""Participations that are drawn together."""


@final
class Engine:
    """Trains ``runs`` models together, any number of times.

    Arguments:
        mechanism: The training.
        runs: Number of models trained together; it fixes the shapes.
        speed: Device and precision.
        canaries: The canaries to insert, if any.
        insertion: The steps at which canaries are inserted; every step by default.
        seed: Random seed of the noise and of Poisson participation.
        stream: The stream of the noise: that of the game, or that of adversaries' simulations.
        private: Whether gradients are clipped and noise is added.
        taps: How the model is tapped; by default `check_mechanism` finds out.
        respond: Computes the canaries of an adaptive adversary during training. It is called
            between compiled steps, before each step with an insertion.
        compiled: Whether to compile the step; ``"fused"`` takes `dpaudit.engine.fused`.
        times: How often the models will be trained. With few steps in all, tracing is not
            worthwhile.
    """

    def __init__(
        self,
        mechanism: DPSGD,
        *,
        runs: int,
        speed: Speed,
        canaries: Canaries | None = None,
        insertion: Insertion | None = None,
        seed: int = 0,
        stream: Stream = Stream.NOISE,
        private: bool = True,
        taps: Taps | None = None,
        respond: Respond | None = None,
        compiled: bool | Literal["fused"] = False,
        times: int = 1,
    ) -> None:
        speed = speed.settled()
        self._mechanism, self._respond = mechanism, respond
        self._device, self._dtype = speed.torch_device(), speed.dtype
        self._precision = speed.precision
        self._insertion = Insertion() if insertion is None else insertion
        self._seed, self._stream = seed, stream
        self._noisy = private and mechanism.noise_multiplier > 0
        self._count = 0 if canaries is None else canaries.count
        points = canaries if isinstance(canaries, CanaryPoints) and respond is None else None
        self._points = 0 if points is None else points.count
        self._memory = 0 if mechanism.correlation is None else mechanism.correlation.memory
        self._lay_out_batches(points, speed)
        self._scalars = self._all_scalars(private)

        taps = check_mechanism(mechanism).taps if taps is None else taps
        template = known_model(mechanism).to(self._device, speed.product_dtype)
        convolutions = fastest_convolutions(template, runs, speed)
        if convolutions == "kernels" and not taps.per_example:
            from dpaudit.engine.kernels.rule import with_blocks

            template = with_blocks(template, self._features[:2])
        self._clipped_sums = ClippedSums(
            template,
            mechanism.loss,
            self._examples(self._rows[0, 0], self._draws(0)[: self._size])[0],
            taps,
            rule_for=partial(rule_for, products=convolutions != "library"),
            # A simulation without clipping has an infinite clip norm, which needs flat clipping.
            clipping=mechanism.clipping if private else FlatClipping(),
            views=1 if mechanism.augmentation is None else mechanism.augmentation.views,
            dtype=speed.product_dtype,
        )
        self.parameters = sum(self._clipped_sums.sizes)
        """Number of parameters of one model."""
        self._insert = self._inserting(None if respond is not None else canaries)
        self._notices = self._clipped_sums.notices
        self._fused = self._make_fused(speed, taps) if compiled == "fused" else None

        # One run without `torch.func` is fast without tracing. On a GPU the graph leaves out
        # operations, so its bits may differ from the function's: it is traced at once.
        on_cpu, parts = self._device.type == "cpu", self._rows.shape[1]
        few = self._fused is not None or (runs == 1 and not taps.per_example)
        calls = (0 if few else times * mechanism.steps) if on_cpu else WORTH_TRACING
        how: dict[str, Any] = {"compiled": compiled is True, "calls": calls}
        self._step = self._part = self._update = None
        if parts == 1:
            self._step = Compiled(self._whole_step, **how, distances=self._step_apart)
        else:
            how["calls"] = calls * parts
            self._part = Compiled(
                self._sums,
                **how,
                distances=lambda fast, plain, _: [self._sums_apart(fast[0], plain[0])],
            )
            self._update = Compiled(
                lambda *args: (self._next(*args),),
                **how,
                distances=lambda fast, plain, args: [
                    self._update_apart(fast[0], plain[0], args[0])
                ],
            )

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user: layers without a rule, failed compilation."""
        functions = (self._fused, self._part, self._step, self._update)
        return self._notices + tuple(n for f in functions if f is not None for n in f.notices)

    def states(
        self, start: Tensor, runs: Tensor, coins: Tensor, after: Sequence[int] | None = None
    ) -> Iterator[Tensor]:
        """The state after each step, shape (1 + slots, runs, parameters).

        Arguments:
            start: The initial parameters, shape (runs, parameters).
            runs: The numbers of the runs, shape (runs,), int64.
            coins: 1 where the canary is inserted, shape (runs, canaries).
            after: Increasing numbers of steps after which the state is given; by default all.
        """
        steps = self._mechanism.steps
        start = start.to(self._device, self._dtype)
        slots = [torch.zeros_like(start)] * (self._mechanism.optimizer.slots + self._memory)
        averages = [] if self._mechanism.averaging is None else [start]
        state = torch.stack([start, *slots, *averages])
        runs, coins = runs.to(self._device), coins.to(self._device, self._dtype)
        key = noise.key(self._seed, self._device)
        numbers = torch.arange(steps, device=self._device)
        participating = self._participations(key, runs)
        step = 0
        for stop in range(1, steps + 1) if after is None else after:
            while step < stop:
                if self._fused is not None and self._alike and self._fused.trusted:
                    last = min(stop, step + MOST_FUSED_STEPS)
                    state = self._fused(state, coins, runs, step, last)
                    step = last
                    continue
                present = next(participating)
                own = coins if present is None else coins * present
                entering = self._entering(state[0], own, step)
                rest = (entering, runs, numbers[step], key, self._scalars[step])
                one_step = self._step if self._fused is None else self._fused.one_step
                if one_step is not None:
                    at = int(self._at[step])
                    batch = self._rows[at, 0], self._present[at], self._draws(step)
                    state = one_step(state, *batch, *rest)
                else:
                    assert self._update is not None
                    state = self._update(state, self._all_sums(state[0], step, entering), *rest)
                step += 1
            yield state

    def genuine_sum(self, current: Tensor, step: int) -> Tensor:
        """The clipped sum of ``step``'s genuine examples at ``current``, (runs, parameters)."""
        with torch.no_grad():
            return self._all_sums(current, step, current.new_zeros(len(current), self._points))

    # The data: tables of batches, and scalars of every step.

    def _lay_out_batches(self, points: CanaryPoints | None, speed: Speed) -> None:
        """Canary points are rows behind the data and columns behind every batch."""
        mechanism, device = self._mechanism, self._device
        data = mechanism.data
        numbers, genuine, at = batch_table(mechanism.batches, mechanism.steps, len(data))
        rows, present = torch.from_numpy(numbers), torch.from_numpy(genuine)
        features, targets = as_tensor(data.features), as_tensor(data.targets)
        if points is not None:
            own = len(data) + torch.arange(points.count)
            rows = torch.cat([rows, own.expand(len(rows), -1)], dim=1)
            features = torch.cat([features, points.features.cpu().to(features.dtype)])
            targets = torch.cat([targets, points.targets.cpu().to(targets.dtype)])
        self._at, self._width = at, present.shape[1]
        self._size = min(speed.virtual_batch or rows.shape[1], rows.shape[1])
        self._missing = -rows.shape[1] % self._size
        # (batches, parts, examples); parts are of one size, padded with example 0
        padded = functional.pad(rows, (0, self._missing))
        self._rows = torch.unflatten(padded, 1, (-1, self._size)).to(device)
        self._present = present.to(device, self._dtype)
        real = speed.product_dtype if features.is_floating_point() else None
        self._features = features.to(device, real)
        # Real targets keep the precision of the parameters also in half-precision passes.
        self._targets = targets.to(device, self._dtype if targets.is_floating_point() else None)

    def _all_scalars(self, private: bool) -> Tensor:
        """For each step what may change without compiling again, shape (steps, 5).

        The clip norm, the noise, the factor of weight decay, the learning rate, and one over the
        batch size.
        """
        mechanism = self._mechanism
        size = mechanism.batches.expected_size(len(mechanism.data))
        clip_norm = mechanism.clip_norm if private else math.inf
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        constant = isinstance(mechanism.schedule, ConstantRate)
        rates = [mechanism.rate(step) for step in range(1 if constant else mechanism.steps)]
        rows = [[clip_norm, spread, 1 - r * mechanism.weight_decay, r, 1 / size] for r in rates]
        scalars = torch.tensor(rows, dtype=self._dtype, device=self._device)
        return scalars.expand(mechanism.steps, -1)

    def _draws(self, step: int) -> Tensor:
        """Random numbers for the views of all columns; empty without augmentation."""
        draws = view_draws(self._mechanism, step, self._width + self._points)
        if len(draws):
            draws = torch.cat([draws, draws.new_zeros(self._missing, *draws.shape[1:])])
        return draws.to(self._device)

    def _examples(self, rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Features and targets of some rows; the views of an example one after the other."""
        features, augmentation = self._features[rows], self._mechanism.augmentation
        if augmentation is not None:
            features = augmentation.apply(features, draws).flatten(0, 1)
        return features, self._targets[rows]

    # The canaries: coins, and how they enter.

    @property
    def _alike(self) -> bool:
        """Whether the same canaries enter at every step with an insertion."""
        return self._respond is None and (not self._count or self._mechanism.sampling_rate is None)

    def _participations(self, key: Tensor, runs: Tensor) -> Iterator[Tensor | None]:
        """For each step which canaries participate, (runs, canaries); `None` if all do."""
        steps, rate = self._mechanism.steps, self._mechanism.sampling_rate
        at_once = max(1, _DRAWS_AT_ONCE // max(1, len(runs) * self._count))
        for first in range(0, steps, at_once):
            numbers = torch.arange(first, min(steps, first + at_once), device=runs.device)
            if rate is None or not self._count:
                yield from [None] * len(numbers)
            else:
                yield from participation(key, runs, numbers.view(-1, 1, 1), self._count, rate)

    def _entering(self, current: Tensor, coins: Tensor, step: int) -> Tensor:
        """The coins (runs, canaries); for an adaptive adversary its whole sum (runs, parameters).

        Adaptive canaries depend on the iterate, so they are computed between compiled steps.
        """
        inserts = self._insertion.at(step)
        if self._respond is None:
            return coins if inserts else torch.zeros_like(coins)
        if not inserts:
            return torch.zeros_like(current)
        return torch.einsum("rc,rcp->rp", coins, self._respond(step, current).to(self._dtype))

    def _inserting(self, canaries: Canaries | None) -> Callable[[Tensor, Tensor], Tensor]:
        """A function that adds to sums what enters, except points, which are in the batch."""
        match canaries:
            case None if self._respond is not None:
                return lambda sums, entering: sums + entering
            case None | CanaryPoints():
                return lambda sums, entering: sums
            case CraftedGradients():
                gradients = canaries.gradients.to(self._device, self._dtype)
                return lambda sums, entering: sums + entering @ gradients
            case CraftedDimensions(norm=norm):
                # A look-up instead of a scatter: dimensions without canary look up a zero.
                canary_of = torch.full((self.parameters,), canaries.count)
                canary_of[canaries.dimensions.cpu()] = torch.arange(canaries.count)
                canary_of = canary_of.to(self._device)
                return lambda sums, coins: sums + norm * functional.pad(coins, (0, 1))[:, canary_of]
            case _:
                raise InvalidInput(
                    "canaries must be CraftedDimensions, CraftedGradients or CanaryPoints, "
                    f"got {type(canaries).__name__}"
                )

    # The two functions, and what is made of them.

    def _sums(
        self, current: Tensor, rows: Tensor, weights: Tensor, draws: Tensor, clip_norm: Tensor
    ) -> Results:
        """The clipped sum of some rows."""
        features, targets = self._examples(rows, draws)
        return (self._clipped_sums(current, features, targets, weights, clip_norm).to(self._dtype),)

    def _next(
        self,
        before: Tensor,
        sums: Tensor,
        entering: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        """The state after a step: canary gradients, noise, optimizer and averaging."""
        mechanism, optimizer = self._mechanism, self._mechanism.optimizer
        _, spread, kept_share, rate, one_over_size = scalars.unbind()
        count = (step + 1).to(self._dtype)
        parameters, *rest = before.unbind()
        slots, past = tuple(rest[: optimizer.slots]), rest[optimizer.slots :][: self._memory]
        sums = self._insert(sums, entering)
        if self._noisy:
            fresh = noise.normals(key, self._stream, runs, step, self.parameters, self._dtype)
            if mechanism.correlation is not None:
                fresh = mechanism.correlation.next(fresh, tuple(past))
                past = [fresh, *past][: self._memory]
            sums = sums + spread * fresh
        if mechanism.weight_decay:
            parameters = parameters * kept_share
        parameters, slots = optimizer.step(
            parameters, sums * one_over_size, slots, rate=rate, count=count
        )
        state = [parameters, *slots, *past]
        if mechanism.averaging is not None:
            state.append(mechanism.averaging.update(rest[-1], parameters, count=count))
        return torch.stack(state)

    def _whole_step(
        self,
        state: Tensor,
        rows: Tensor,
        present: Tensor,
        draws: Tensor,
        entering: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Results:
        """The next state, and the sums, which are compared by themselves."""
        weights = self._weights(present, entering, len(runs))
        (sums,) = self._sums(state[0], rows, weights, draws, scalars[0])
        return self._next(state, sums, entering, runs, step, key, scalars), sums

    def _weights(self, present: Tensor, entering: Tensor, runs: int) -> Tensor:
        """The weights of all columns, shape (runs, columns)."""
        weights = present.expand(runs, -1)
        return torch.cat([weights, entering], dim=1) if self._points else weights

    def _all_sums(self, current: Tensor, step: int, entering: Tensor) -> Tensor:
        """The clipped sum of a batch, one part after the other."""
        batch, draws, total = int(self._at[step]), self._draws(step), torch.zeros_like(current)
        weights = self._weights(self._present[batch], entering, len(current))
        weights = functional.pad(weights, (0, self._missing))
        for number, rows in enumerate(self._rows[batch]):
            own = slice(number * self._size, (number + 1) * self._size)
            part = weights[:, own].contiguous()
            args = (current, rows, part, draws[own], self._scalars[step, 0])
            total = total + (self._sums(*args)[0] if self._part is None else self._part(*args))
        return total

    def _update_apart(self, fast: Tensor, plain: Tensor, before: Tensor) -> tuple[float, float]:
        """The distance of two states after a step, and the largest that is allowed."""
        return update_distance(fast, plain, before), UPDATE_TOLERANCE[self._precision]

    def _sums_apart(self, fast: Tensor, plain: Tensor) -> tuple[float, float]:
        """The same for two clipped sums, which noise would hide in the states."""
        clip_norm = float(self._scalars[0, 0])
        largest = clip_norm * self._size if math.isfinite(clip_norm) else 0.0
        distance = sum_distance(fast, plain, self._clipped_sums.sizes, largest)
        return distance, SUM_TOLERANCE[self._precision]

    def _step_apart(
        self, fast: Results, plain: Results, args: tuple[Any, ...]
    ) -> list[tuple[float, float]]:
        return [self._update_apart(fast[0], plain[0], args[0]), self._sums_apart(fast[1], plain[1])]

    def _make_fused(self, speed: Speed, taps: Taps) -> FusedSteps | None:
        """The training as one C++ function; without a compiler `None`, and a notice."""
        widths = fused_widths(self._mechanism, speed, taps)
        if widths is None or self._device.type != "cpu":
            raise InvalidInput(
                "compile='fused' needs a small fully connected network trained by plain DP-SGD on "
                "a CPU; use compile='auto'"
            )
        steps = self._mechanism.steps
        inserted = [float(self._insertion.at(step)) for step in range(steps)]
        try:
            return FusedSteps(
                widths,
                features=self._features,
                targets=self._targets,
                rows=self._rows.flatten(1),
                present=functional.pad(self._present, (0, self._points), value=1.0),
                batch_at=torch.from_numpy(self._at),
                inserted_at=torch.tensor(inserted),
                scalars=self._scalars,
                key=noise.key(self._seed),
                stream=self._stream,
                noisy=self._noisy,
                slow=self._whole_step,
                insert=self._insert,
                points=self._points > 0,
                distances=self._step_apart,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._notices += (f"no fused step, so this will be slower: {error}",)
            return None


BatchTable = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]
"""The different batches (distinct, width), padded with example 0; 1 for their examples and 0 for
padding, of the same shape; and the index of each step's batch, shape (steps,)."""


def batch_table(plan: BatchPlan, steps: int, examples: int) -> BatchTable:
    """The batches of the first ``steps`` steps. Those that occur several times are stored once.

    Example:
        >>> from dpaudit.mechanisms.batches import FixedBatches
        >>> batch_table(FixedBatches(batch_size=2), 4, 5)[2].tolist()
        [0, 1, 0, 1]
    """
    if not isinstance(plan, Hashable):  # a user's plan
        return _batch_table.__wrapped__(plan, steps, examples)
    return _batch_table(plan, steps, examples)


@lru_cache(maxsize=8)
def _batch_table(plan: BatchPlan, steps: int, examples: int) -> BatchTable:
    places: dict[bytes, int] = {}
    batches: list[NDArray[np.int64]] = []
    at = np.empty(steps, dtype=np.int64)
    for step in range(steps):
        indices = plan.indices(step, examples)
        at[step] = places.setdefault(indices.tobytes(), len(batches))
        if at[step] == len(batches):
            batches.append(indices)
    width = max(1, *(len(batch) for batch in batches)) if batches else 1
    rows = np.zeros((len(batches), width), dtype=np.int64)
    present = np.zeros((len(batches), width), dtype=np.float32)
    for place, batch in enumerate(batches):
        rows[place, : len(batch)] = batch
        present[place, : len(batch)] = 1
    return rows, present, at


def participation(key: Tensor, runs: Tensor, step: Tensor, canaries: int, rate: float) -> Tensor:
    """Whether each canary participates in ``step``, shape (runs, canaries), bool.

    Several steps of shape (steps, 1, 1) give shape (steps, runs, canaries).
    """
    return noise.uniforms(key, Stream.PARTICIPATION, runs, step, canaries).lt(rate)


def view_draws(mechanism: DPSGD, step: int, count: int) -> Tensor:
    """Public random numbers for the views of ``count`` examples, (examples, views, draws)."""
    augmentation = mechanism.augmentation
    if augmentation is None:
        return torch.zeros(0)
    shape = (count, augmentation.views, augmentation.draws)
    start, when = torch.zeros(1, dtype=torch.int64), torch.tensor(step)
    numbers = math.prod(shape)
    return noise.uniforms(noise.key(0), Stream.AUGMENTATION, start, when, numbers).view(shape)


def canary_draws(mechanism: DPSGD, step: int, canaries: int) -> Tensor:
    """The random numbers for the views of canaries, which come after those of the widest batch."""
    rows = batch_table(mechanism.batches, mechanism.steps, len(mechanism.data))[0]
    width = rows.shape[1]
    return view_draws(mechanism, step, width + canaries)[width:]


def fastest_convolutions(
    model: torch.nn.Module, runs: int, speed: Speed
) -> Literal["library", "product", "kernels"]:
    """How to compute the convolutions of ``model``, if ``speed`` leaves it open."""
    if speed.convolutions != "auto":
        return speed.convolutions
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d)
    layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
    largest = max((layer.weight.numel() for layer in layers), default=0)
    speed = speed.settled()
    on_gpu = speed.torch_device().type == "cuda"
    if not on_gpu or runs == 1 or not 0 < largest < LARGE_LAYER:
        return "library"
    if speed.precision not in ROUNDED:
        return "product"
    from dpaudit.engine.kernels.launching import usable

    return "kernels" if usable() else "product"
