r"""Many DP-SGD trainings at once: one step for all runs of a tile.

.. math::
    \theta_r \leftarrow \theta_r - \frac{\eta}{B} \Big( \sum_b \mathrm{clip}(g_{rb}, C)
        + \text{canaries} + \sigma C \, Z_r \Big)

Clipping, insertion, noise and update are one graph of fixed shapes. The slow twin is
`dpaudit.games.reference.play`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.clipping import ClippedSums
from dpaudit.engine.compilation import TOLERANCE, Traced
from dpaudit.engine.inserting import SumInserter, inserter
from dpaudit.engine.noise import Stream
from dpaudit.engine.participation import participation
from dpaudit.engine.rules import rules
from dpaudit.engine.schedule import schedule
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.engine.tapping import TappedModel
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries

Respond = Callable[[int, Tensor], Tensor]
"""From a step and the current parameters to what each run's canaries add to the sum, shape
(runs, canaries, parameters)."""

LARGE_LAYER = 2**14
"""Weights of a convolution from which the vendor's library beats a batched product on a GPU; on a
CPU it always did."""


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """What the engine trains: a mechanism, and what is added to it or taken from it.

    Arguments:
        mechanism: The training.
        canaries: What goes in, or nothing.
        insertion: At which steps.
        seed: Of the noise and of Poisson participation.
        stream: Which noise: the game's, or an adversary's own.
        clipped: Whether gradients are clipped.
        noisy: Whether noise is added.
        whole: Treat the model as one layer without a rule; `dpaudit.engine.mechanism_check`
            finds out whether that is needed.
        respond: What the canaries add, where an adversary chooses them as training goes on. It is
            asked between the compiled steps, at those with an insertion.
    """

    mechanism: DPSGD
    canaries: Canaries | None = None
    insertion: Insertion = field(default_factory=Insertion)
    seed: int = 0
    stream: Stream = Stream.NOISE
    clipped: bool = True
    noisy: bool = True
    whole: bool = False
    respond: Respond | None = None


@final
class Engine:
    """Plays ``runs`` trainings together, any number of times.

    Arguments:
        training: What to train.
        runs: How many runs are played together; shapes are fixed by it.
        speed: Device and precision.
        compiled: Whether to compile.
    """

    def __init__(self, training: Training, *, runs: int, speed: Speed, compiled: bool) -> None:
        mechanism, device = training.mechanism, speed.torch_device()
        self._training, self._device, self._dtype = training, device, speed.dtype
        self._runs = runs
        template = known_model(mechanism).to(device, speed.product_dtype)
        model = TappedModel(
            template,
            rules(convolutions_as_products=_as_products(template, runs, speed)),
            whole=training.whole,
        )
        self.parameters = model.parameters
        self._plan = schedule(mechanism.batches, mechanism.steps, len(mechanism.data))
        self._batches = torch.from_numpy(self._plan.batches).to(device)
        self._present = torch.from_numpy(self._plan.present).to(device, self._dtype)
        if training.respond is None:
            self._inserter = inserter(training.canaries, model.parameters, self._dtype, device)
        else:
            self._inserter = SumInserter()
        self._count = 0 if training.canaries is None else training.canaries.count
        self._product_dtype = speed.product_dtype
        self._features = self._cast(as_tensor(mechanism.data.features).to(device))
        self._targets = as_tensor(mechanism.data.targets).to(device)
        features, _ = self._batch(self._batches[0])
        calls = model.measure([p.detach() for p in trainable(template)], features)
        self._clipped_sums = ClippedSums(model, mechanism.loss, calls)
        self._step = Traced(
            self._one_step,
            self._example(),
            compiled=compiled,
            tolerance=TOLERANCE[speed.precision],
        )
        self._model_notices = model.notices

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know: layers without a rule, no compiler."""
        return self._model_notices + self._step.notices

    def play(self, start: Tensor, runs: Tensor, coins: Tensor) -> Iterator[Tensor]:
        """The parameters (runs, parameters) after each step.

        Arguments:
            start: Where the runs begin, shape (runs, parameters).
            runs: The numbers of the runs, shape (runs,), int64.
            coins: 1 where the canary is inserted, shape (runs, canaries).
        """
        mechanism, device = self._training.mechanism, self._device
        current = start.to(device, self._dtype)
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
            current = self._step(
                current,
                self._batches[batch],
                self._present[batch],
                self._entering(current, coins, runs, step) * active[step],
                runs,
                steps[step],
                key,
                scalars,
            )
            yield current

    def genuine_sum(self, current: Tensor, step: int) -> Tensor:
        """What the genuine examples of ``step`` add up to at ``current``, (runs, parameters)."""
        batch = int(self._plan.at[step])
        features, targets = self._batch(self._batches[batch])
        weights = self._present[batch].expand(len(current), -1)
        clip_norm = self._scalars()[1]
        with torch.no_grad():
            return self._clipped_sums(
                current.to(self._product_dtype), features, targets, weights, clip_norm
            ).to(self._dtype)

    def _entering(self, current: Tensor, coins: Tensor, runs: Tensor, step: int) -> Tensor:
        """The coins (runs, canaries); or, of an adaptive adversary, all it adds (runs, parameters).

        Its canaries depend on the iterate, so that they are made here, between compiled steps.
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

    def _scalars(self) -> Tensor:
        """Rate over batch size, clip norm and noise: tensors, so that no value is compiled in."""
        mechanism = self._training.mechanism
        rate = mechanism.learning_rate / mechanism.batches.expected_size(len(mechanism.data))
        clip_norm = mechanism.clip_norm if self._training.clipped else float("inf")
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        return torch.tensor([rate, clip_norm, spread], dtype=self._dtype, device=self._device)

    def _one_step(
        self,
        current: Tensor,
        batch: Tensor,
        present: Tensor,
        coins: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        training = self._training
        rate, clip_norm, spread = scalars[0], scalars[1], scalars[2]
        sampling_rate = training.mechanism.sampling_rate
        if sampling_rate is not None and self._count and training.respond is None:
            coins = coins * participation(key, runs, step, self._count, sampling_rate)
        features, targets = self._batch(batch)
        weights = present.expand(len(current), -1)
        if self._inserter.points is not None:
            weights = torch.cat([weights, coins], dim=1)
        sums = self._clipped_sums(
            current.to(self._product_dtype), features, targets, weights, clip_norm
        ).to(self._dtype)
        update = self._inserter.add(sums, coins)
        if training.noisy and training.mechanism.noise_multiplier > 0:
            update = update + spread * noise.normals(
                key, training.stream, runs, step, self.parameters, self._dtype
            )
        decay = training.mechanism.weight_decay * training.mechanism.learning_rate
        if decay:
            current = current * (1 - decay)
        return current - rate * update

    def _batch(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        features, targets = self._features[batch], self._targets[batch]
        if self._inserter.points is None:
            return features, targets
        more, labels = self._inserter.points
        return torch.cat([features, self._cast(more)]), torch.cat([targets, labels])

    def _cast(self, features: Tensor) -> Tensor:
        return features.to(self._product_dtype) if features.is_floating_point() else features

    def _entries(self) -> int:
        return self._count if self._training.respond is None else self.parameters

    def _example(self) -> tuple[Tensor, ...]:
        device, runs = self._device, self._runs
        return (
            torch.zeros(runs, self.parameters, dtype=self._dtype, device=device),
            self._batches[0],
            self._present[0],
            torch.zeros(runs, self._entries(), dtype=self._dtype, device=device),
            torch.arange(runs, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
            noise.key(0, device),
            self._scalars(),
        )


def _as_products(model: torch.nn.Module, runs: int, speed: Speed) -> bool:
    if speed.convolutions != "auto":
        return speed.convolutions == "product"
    largest = max(
        (
            layer.weight.numel()
            for layer in model.modules()
            if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d)
        ),
        default=0,
    )
    return speed.torch_device().type == "cuda" and runs > 1 and largest < LARGE_LAYER
