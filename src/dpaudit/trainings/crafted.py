"""What all crafted gradients have in common: how they are inserted, and how they are scored.

Only numpy is used: the training may use torch, JAX, TensorFlow or another language.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.trainings.coins import coins_of

AS_LARGE_AS = 10.0
"""The norm of a canary's gradient before clipping, in units of the clip norm."""


class CraftedCanary(abc.ABC):
    """Crafted gradients, one for each canary, all longer than the clip norm.

    A training inserts a canary like any example: `rows` are the gradients before clipping. A
    training that cannot take further rows adds `clipped_sum` instead.
    """

    clip_norm: float
    norm: float
    names: tuple[str, ...]

    if TYPE_CHECKING:  # a field of one subclass, a property of the other

        @property
        def parameters(self) -> int:
            """Length of the flat parameter vector."""

    @classmethod
    def draw(
        cls,
        parameters: int,
        *,
        clip_norm: float,
        count: int = 1,
        seed: int = 0,
        norm: float | None = None,
    ) -> Self:
        """Draw ``count`` orthogonal directions; ``norm`` is ten times the clip norm by default."""
        random, norms = _drawing(parameters, count, clip_norm, norm, seed)
        return cls(**cls.drawn(int(parameters), count, random), **norms)

    @classmethod
    def per_tensor(
        cls,
        tensors: Mapping[str, int],
        *,
        clip_norm: float,
        seed: int = 0,
        norm: float | None = None,
    ) -> Self:
        """Draw one canary in every parameter tensor; the canaries have the names of the tensors.

        An audit then finds and names a tensor without noise, or one left out of the clip norm.

        Arguments:
            tensors: Names and sizes of the tensors, in the order of the flat parameter vector, for
                instance ``{name: p.numel() for name, p in model.named_parameters()}``.
            clip_norm: The norm C to which the training claims to clip.
            seed: Random seed of the directions.
            norm: Norm before clipping; ten times the clip norm by default.
        """
        slices = _slices(tensors)
        total = max(where.stop for where in slices.values())
        random, norms = _drawing(total, len(slices), clip_norm, norm, seed)
        return cls(**cls.drawn_in(slices, total, random), **norms)

    @classmethod
    @abc.abstractmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """The fields of ``count`` canaries in a vector of this length, without the norms."""

    @classmethod
    @abc.abstractmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """The fields of one canary in every slice, with their names and without the norms."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of canaries."""

    @abc.abstractmethod
    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The directions of the canaries that these coins select, each of norm 1."""

    @abc.abstractmethod
    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """The sum of these directions, without making the rows: there may be thousands."""

    @abc.abstractmethod
    def along(self, flat: Array) -> Array:
        """The component of a flat vector along the direction of every canary."""

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradients of the inserted canaries before clipping, one row each."""
        return self.norm * self.unit_rows(coins_of(inserted, self.count))

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The sum of the inserted canaries after correct clipping, flat."""
        return min(self.norm, self.clip_norm) * self.unit_sum(coins_of(inserted, self.count))

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against each canary's gradient, one score per canary.

        Arguments:
            final: The flat parameters at the end of training.
            initial: The flat parameters at the start, if they are known; this removes noise.
        """
        moved = self._flat("final parameters", final)
        if initial is not None:
            moved = moved - self._flat("initial parameters", initial)
        return -self.along(moved)

    def _flat(self, name: str, values: ArrayLike) -> Array:
        flat = np.asarray(values, dtype=np.float64)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{name} must be flat with one number for each of the {self.parameters} parameters "
                f"that the canary was drawn for, got shape {flat.shape}"
            )
        return flat


def _drawing(
    parameters: int, count: int, clip_norm: float, norm: float | None, seed: int
) -> tuple[np.random.Generator, dict[str, float]]:
    """The random generator, and the checked norms, of canaries that are drawn."""
    parameters = _validate.integer("parameters", parameters, at_least=1)
    count = _validate.integer("count", count, at_least=1)
    if count > parameters:
        raise InvalidInput(
            f"count must be at most the number of parameters ({parameters}), since canaries are "
            f"orthogonal; got {count}"
        )
    clip_norm = _validate.positive("clip_norm", clip_norm)
    norm = AS_LARGE_AS * clip_norm if norm is None else _validate.positive("norm", norm)
    random = np.random.default_rng(_validate.integer("seed", seed))
    return random, {"clip_norm": clip_norm, "norm": norm}


def _slices(tensors: Mapping[str, int]) -> dict[str, slice]:
    """Where each tensor lies in the flat parameter vector."""
    if not tensors:
        raise InvalidInput("tensors must name at least one tensor with its size, got none")
    found, start = {}, 0
    for name, size in tensors.items():
        size = _validate.integer(f"size of tensor {name!r}", size, at_least=1)
        found[str(name)] = slice(start, start + size)
        start += size
    return found
