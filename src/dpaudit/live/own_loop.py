"""Canaries in a training loop of the user's own, in any library with arrays.

The loop calls two methods of the live audit in every step: ``add`` on the sums of clipped
gradients, before the noise, and ``observe`` on the noisy sums. Sums are a sequence of tensors or
arrays, one for each trained tensor, in the order of the ``sizes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.live.evidence import LiveEvidence, Places


@final
class OwnSums:
    """The sums of one training loop at the coordinates of the canaries.

    Arguments:
        evidence: Decides who takes part, and receives the observations.
        clip_norm: The clip norm of all tensors together.
        rate: Claimed sampling rate.
        noise_multiplier: Claimed noise multiplier.
        subtract: Whether the genuine sum is subtracted from what is observed.
    """

    def __init__(
        self,
        evidence: LiveEvidence,
        *,
        clip_norm: float,
        rate: float,
        noise_multiplier: float,
        subtract: bool,
    ) -> None:
        self._evidence, self._subtract = evidence, subtract
        self.after_step: Callable[[], None] = lambda: None
        self._clip_norm = _validate.positive("clip_norm", clip_norm)
        self._rate = _validate.between("sampling_rate", rate, 0, 1, closed_high=True)
        self._noise_multiplier = _validate.positive("noise_multiplier", noise_multiplier)
        self._genuine: Array | None = None

    def watching(self) -> AbstractContextManager[None]:
        """Nothing to open: the loop calls `add` and `observe`."""
        return nullcontext()

    def settle(self) -> None:
        """Every step is counted when it is observed."""

    def add(self, sums: Sequence[Any]) -> list[Any]:
        """The sums with the canaries of this step; arrays that can be changed are changed."""
        _require_exact("sums", sums)
        added = self.added_to(self._values("sums", sums))
        result, start = [], 0
        for tensor, here in zip(sums, self._evidence.places, strict=True):
            mine = added[start : start + len(here)]
            start += len(here)
            result.append(_with(tensor, here[mine != 0], self._clip_norm))
        return result

    def observe(self, noisy: Sequence[Any]) -> None:
        """Observe the noisy sums of this step."""
        _require_exact("noisy", noisy)
        self.observed(self._values("noisy", noisy))

    def added_to(self, genuine: Array) -> Array:
        """What the canaries of this step add at their coordinates, whose genuine sums these are."""
        if self._genuine is not None:
            raise InvalidInput(
                "add was called twice without observe; call observe(noisy sums) in every step"
            )
        self._genuine = genuine
        return np.asarray(self._clip_norm * self._evidence.take_part(self._rate))

    def observed(self, observed: Array) -> None:
        """Observe the noisy sums of this step at the coordinates of the canaries."""
        if self._genuine is None:
            raise InvalidInput(
                "observe was called without add; call add(sums) before the noise in every step"
            )
        if self._subtract:
            observed = observed - self._genuine
        self._genuine = None
        observed, effect = self._evidence.whitened(observed / self._clip_norm)
        self._evidence.observe(
            observed, rate=self._rate, noise_multiplier=self._noise_multiplier / effect
        )
        self.after_step()

    def _values(self, name: str, tensors: Sequence[Any]) -> Array:
        sizes = tuple(int(np.prod(np.shape(tensor))) for tensor in tensors)
        if sizes != self._evidence.sizes:
            raise InvalidInput(
                f"{name} must have one tensor for each trained tensor, of "
                f"{list(self._evidence.sizes)} numbers, got {list(sizes)}"
            )
        parts = [
            _at(tensor, here)
            for tensor, here in zip(tensors, self._evidence.places, strict=True)
            if len(here)
        ]
        return np.concatenate(parts)


def _require_exact(name: str, tensors: Sequence[Any]) -> None:
    """Refuse sums that are rounded so coarsely that the canary is lost in a large sum."""
    for tensor in tensors:
        dtype = str(getattr(tensor, "dtype", ""))
        if dtype.rpartition(".")[2] in ("bfloat16", "float16"):
            raise InvalidInput(
                f"{name} must be at least float32, got {dtype}: rounding of the noisy sum would "
                "depend on the genuine sum, which no accountant allows for; add clipped gradients "
                "and noise in float32"
            )


def _at(tensor: Any, places: Places) -> Array:
    """The numbers at these indices of the flattened tensor."""
    if hasattr(tensor, "detach"):  # torch
        import torch

        where = torch.as_tensor(places, device=tensor.device)
        return np.asarray(tensor.detach().reshape(-1)[where].double().cpu().numpy())
    return np.asarray(tensor.reshape(-1)[places], dtype=float)


def _with(tensor: Any, places: Places, amount: float) -> Any:
    """The tensor with ``amount`` added at these indices."""
    if len(places) == 0:
        return tensor
    if hasattr(tensor, "detach"):
        import torch

        where = torch.as_tensor(places, device=tensor.device)
        index = torch.unravel_index(where, tensor.shape)
        tensor.data[index] += amount
        return tensor
    position = np.unravel_index(places, tensor.shape)
    if hasattr(tensor, "at"):  # jax: arrays do not change
        return tensor.at[position].add(amount)
    tensor[position] += amount
    return tensor
