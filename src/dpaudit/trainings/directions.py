"""Crafted gradients in random directions, over all parameters or inside every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.trainings.crafted import CraftedCanary

EVERYWHERE = "all tensors"
"""Name of the canary that has a share in every tensor."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DirectionCanary(CraftedCanary):
    """Crafted gradients in random directions, with a share in many parameters.

    Clipping by another norm than the Euclidean one (per coordinate, by the largest entry, per
    tensor) treats an axis correctly and such a gradient not.

    See also: `GradientCanary`, along axes, which has the same methods.

    Arguments:
        directions: One direction of norm 1 for each canary, orthogonal to each other.
        clip_norm: The norm C to which the training claims to clip.
        norm: Norm of a canary's gradient before clipping.
        names: The name of each canary; as in `GradientCanary`.

    Example:
        >>> canary = DirectionCanary.draw(400, clip_norm=1.0, count=2)
        >>> canary.score(-canary.clipped_sum([True, False])).round(6)
        array([1., 0.])
    """

    directions: Array
    clip_norm: float
    norm: float
    names: tuple[str, ...] = ()

    @classmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """Orthogonal directions over all parameters."""
        drawn = np.linalg.qr(random.standard_normal((parameters, count)))[0].T
        return {"directions": np.ascontiguousarray(drawn)}

    @classmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """One direction inside every slice, and one with a share in all of them.

        Example:
            >>> DirectionCanary.per_tensor({"weight": 12, "bias": 3}, clip_norm=1.0).names
            ('weight', 'bias', 'all tensors')
        """
        rows = np.zeros((len(slices), parameters))
        for row, where in zip(rows, slices.values(), strict=True):
            row[where] = random.standard_normal(where.stop - where.start)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        names = list(slices)
        if parameters > len(slices) > 1:
            everywhere = random.standard_normal(parameters)
            everywhere -= (rows @ everywhere) @ rows
            rows = np.vstack([rows, everywhere / np.linalg.norm(everywhere)])
            names.append(EVERYWHERE)
        return {"directions": rows, "names": tuple(names)}

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""
        return int(self.directions.shape[1])

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self.directions)

    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The directions of the canaries that these coins select."""
        return self.directions[coins]

    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """The sum of these directions."""
        total: Array = self.directions[coins].sum(axis=0)
        return total

    def along(self, flat: Array) -> Array:
        """The components of a flat vector along the canaries' directions."""
        return self.directions @ flat
