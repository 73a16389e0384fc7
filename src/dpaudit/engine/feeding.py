"""The examples of a training on its device: batches, virtual batches and augmented views."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.noise import Stream
from dpaudit.engine.schedule import schedule
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor
from dpaudit.mechanisms.dpsgd import DPSGD


@final
class Feed:
    """Features and targets of each batch, divided into virtual batches of equal size.

    Arguments:
        mechanism: The training.
        canaries: Number of canaries, which have augmented views too.
        speed: Device, precision and the size of virtual batches.
    """

    def __init__(self, mechanism: DPSGD, canaries: int, speed: Speed) -> None:
        self._mechanism, self._canaries = mechanism, canaries
        self._dtype, self._product_dtype = speed.dtype, speed.product_dtype
        self._device = device = speed.torch_device()
        plan = schedule(mechanism.batches, mechanism.steps, len(mechanism.data))
        self._at, self._width = plan.at, plan.width
        self.size = min(speed.virtual_batch or plan.width, plan.width)
        """Number of examples in each virtual batch; without virtual batches, in a batch."""
        self._batches = _chunked(torch.from_numpy(plan.batches), self.size).to(device)
        present = _chunked(torch.from_numpy(plan.present), self.size)
        self._present = present.to(device, self._dtype)
        self.features = self.cast(as_tensor(mechanism.data.features).to(device))
        self.targets = self._precise(as_tensor(mechanism.data.targets).to(device))

    @property
    def virtual(self) -> bool:
        """Whether a batch consists of several virtual batches."""
        return self.size < self._width

    @property
    def padded_width(self) -> int:
        """Number of examples in all virtual batches of a batch, with padding."""
        return self._batches[0].numel()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The examples' indices, and 0 for padding, else 1; shape (virtual batches, size)."""
        batch = int(self._at[step])
        return self._batches[batch], self._present[batch]

    def whole_batches(self) -> tuple[Tensor, Tensor, Tensor]:
        """The different batches as rows, 0 for padding and else 1, and the row of each step."""
        return self._batches.flatten(1), self._present.flatten(1), torch.from_numpy(self._at)

    def examples(self, batch: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Features and targets of the examples with these indices."""
        return self._viewed(self.features[batch], draws), self.targets[batch]

    def points(self, points: tuple[Tensor, Tensor], draws: Tensor) -> tuple[Tensor, Tensor]:
        """Features and targets of canaries that are examples."""
        features, targets = points
        return self._viewed(self.cast(features), draws), self._precise(targets)

    def draws(self, step: int) -> Tensor:
        """Random numbers for the views of all examples and canaries; empty without augmentation."""
        draws = view_draws(self._mechanism, step, self._width + self._canaries)
        if not len(draws):
            return draws.to(self._device)
        padding = draws.new_zeros(self.padded_width - self._width, *draws.shape[1:])
        return torch.cat([draws[: self._width], padding, draws[self._width :]]).to(self._device)

    def cast(self, features: Tensor) -> Tensor:
        """Features in the precision of products."""
        return features.to(self._product_dtype) if features.is_floating_point() else features

    def _precise(self, targets: Tensor) -> Tensor:
        """Real targets keep the precision of the parameters also in half-precision passes."""
        return targets.to(self._dtype) if targets.is_floating_point() else targets

    def _viewed(self, features: Tensor, draws: Tensor) -> Tensor:
        """The views of every example, one after the other."""
        augmentation = self._mechanism.augmentation
        return (
            features if augmentation is None else augmentation.apply(features, draws).flatten(0, 1)
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
