"""Crafted gradients for a training that dpaudit does not run itself.

Only numpy is used: the training may use torch, JAX, TensorFlow or another language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput

Array = NDArray[np.float64]

AS_LARGE_AS = 10.0
"""The norm of a canary's gradient before clipping, in units of the clip norm."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GradientCanary:
    r"""One crafted gradient, or many: canary ``i`` points along axis ``dimensions[i]``.

    A training inserts a canary like any example: `rows` are the gradients *before* clipping. They
    are longer than the clip norm :math:`C`, so that missing clipping shows. A training that cannot
    take further rows adds `clipped_sum` instead, the sum of the rows after correct clipping:
    :math:`\sum_i b_i \, C e_{d_i}`.

    See also: `dpaudit.audit_training`; `dpaudit.adversaries.RandomDimension`, the same idea for a
    training that dpaudit runs.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), A_GC-R; many at once as in Andrew et al. (ICLR
    2024) and Steinke, Nasr, Jagielski (NeurIPS 2023).

    Arguments:
        parameters: Length of the flat parameter vector.
        dimensions: Index of the parameter of each canary; all distinct.
        clip_norm: The norm C to which the training claims to clip.
        norm: Norm of a canary's gradient before clipping.

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

    @classmethod
    def draw(
        cls,
        parameters: int,
        *,
        clip_norm: float,
        count: int = 1,
        seed: int = 0,
        norm: float | None = None,
    ) -> GradientCanary:
        """Draw ``count`` distinct axes; ``norm`` is ten times the clip norm by default."""
        parameters = _validate.integer("parameters", parameters, at_least=1)
        count = _validate.integer("count", count, at_least=1)
        clip_norm = _validate.positive("clip_norm", clip_norm)
        if count > parameters:
            raise InvalidInput(
                f"count must be at most the number of parameters ({parameters}), since every "
                f"canary has an axis of its own; got {count}"
            )
        random = np.random.default_rng(_validate.integer("seed", seed))
        return cls(
            parameters=parameters,
            dimensions=random.choice(parameters, size=count, replace=False),
            clip_norm=clip_norm,
            norm=AS_LARGE_AS * clip_norm if norm is None else _validate.positive("norm", norm),
        )

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

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradients of the inserted canaries before clipping, one row each."""
        present = self.dimensions[self._coins(inserted)]
        rows = np.zeros((len(present), self.parameters))
        rows[np.arange(len(present)), present] = self.norm
        return rows

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The sum of the inserted canaries after correct clipping, flat."""
        total = np.zeros(self.parameters)
        total[self.dimensions[self._coins(inserted)]] = min(self.norm, self.clip_norm)
        return total

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against each canary's gradient, one score per canary.

        Arguments:
            final: The flat parameters at the end of training.
            initial: The flat parameters at the start, if they are known; this removes noise.
        """
        moved = self._flat("final", final)
        if initial is not None:
            moved = moved - self._flat("initial", initial)
        return -moved[self.dimensions]

    def _flat(self, name: str, values: ArrayLike) -> Array:
        flat = np.asarray(values, dtype=np.float64)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{name} must be flat with one number for each of the {self.parameters} parameters "
                f"that the canary was drawn for, got shape {flat.shape}"
            )
        return flat

    def _coins(self, inserted: ArrayLike) -> NDArray[np.bool_]:
        coins = np.atleast_1d(np.asarray(inserted, dtype=bool))
        if coins.shape != (self.count,):
            raise InvalidInput(
                f"inserted must be one coin for each of the {self.count} canaries, "
                f"got shape {coins.shape}"
            )
        return coins
