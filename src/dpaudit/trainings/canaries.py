"""Crafted gradients along axes, for a training that dpaudit does not run itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.trainings.crafted import CraftedCanary


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GradientCanary(CraftedCanary):
    r"""One crafted gradient, or many: canary ``i`` points along axis ``dimensions[i]``.

    A training inserts a canary like any example: `rows` are the gradients *before* clipping. They
    are longer than the clip norm :math:`C`, so that missing clipping shows. A training that cannot
    take further rows adds `clipped_sum` instead, the sum of the rows after correct clipping:
    :math:`\sum_i b_i \, C e_{d_i}`.

    See also: `dpaudit.audit_training`; `dpaudit.trainings.DirectionCanary`, in random directions;
    `dpaudit.adversaries.RandomDimension`, the same idea for a training that dpaudit runs.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), A_GC-R; many at once as in Andrew et al. (ICLR
    2024) and Steinke, Nasr, Jagielski (NeurIPS 2023).

    Arguments:
        parameters: Length of the flat parameter vector.
        dimensions: Index of the parameter of each canary; all distinct.
        clip_norm: The norm C to which the training claims to clip.
        norm: Norm of a canary's gradient before clipping.
        names: The name of each canary, such as that of its tensor. An audit tests canaries with
            names one by one, and names those that refute the claim.

    Example:
        >>> canary = GradientCanary.draw(5, clip_norm=1.0, seed=3)
        >>> canary.gradient
        array([ 0., 0., 0., 0., 10.])
        >>> canary.clipped_sum(True)
        array([0., 0., 0., 0., 1.])
        >>> canary.score([0.1, 0.2, 0.3, 0.4, -2.0])
        array([2.])
    """

    parameters: int
    dimensions: NDArray[np.int64]
    clip_norm: float
    norm: float
    names: tuple[str, ...] = ()

    @classmethod
    def drawn(cls, parameters: int, count: int, random: np.random.Generator) -> dict[str, Any]:
        """Distinct axes."""
        axes = random.choice(parameters, size=count, replace=False)
        return {"parameters": parameters, "dimensions": axes}

    @classmethod
    def drawn_in(
        cls, slices: Mapping[str, slice], parameters: int, random: np.random.Generator
    ) -> dict[str, Any]:
        """One axis in every slice.

        Example:
            >>> canary = GradientCanary.per_tensor({"weight": 12, "bias": 3}, clip_norm=1.0)
            >>> canary.names, canary.count, canary.parameters
            (('weight', 'bias'), 2, 15)
        """
        axes = [random.integers(where.start, where.stop) for where in slices.values()]
        dimensions = np.array(axes, dtype=np.int64)
        return {"parameters": parameters, "dimensions": dimensions, "names": tuple(slices)}

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self.dimensions)

    @property
    def gradient(self) -> Array:
        """The gradient of a single canary before clipping, flat."""
        if self.count != 1:
            raise InvalidInput(
                f"gradient belongs to a single canary, and there are {self.count}; "
                "use rows(inserted), or clipped_sum(inserted)"
            )
        row: Array = self.rows(True)[0]
        return row

    def unit_rows(self, coins: NDArray[np.bool_]) -> Array:
        """The axes of the canaries that these coins select."""
        present = self.dimensions[coins]
        rows = np.zeros((len(present), self.parameters))
        rows[np.arange(len(present)), present] = 1.0
        return rows

    def unit_sum(self, coins: NDArray[np.bool_]) -> Array:
        """One at the axes of the canaries that these coins select, zero elsewhere."""
        total = np.zeros(self.parameters)
        total[self.dimensions[coins]] = 1.0
        return total

    def along(self, flat: Array) -> Array:
        """The entries of a flat vector at the canaries' axes."""
        return flat[self.dimensions]


def require_known_clipping(canary: object, through_clipping: bool) -> None:
    """Raise an error if the canary is to be added clipped and its clipped gradient is unknown."""
    if not through_clipping and not isinstance(canary, GradientCanary):
        raise InvalidInput(
            "through_clipping=False needs a GradientCanary, whose clipped gradients are known; "
            f"got {type(canary).__name__}"
        )
