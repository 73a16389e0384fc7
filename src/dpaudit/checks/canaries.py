"""A crafted gradient of any shape, with the methods of a `GradientCanary`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidInput

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ShapedCanary:
    """One crafted gradient before clipping: along an axis, dense, huge, or not finite.

    See also: `dpaudit.trainings.GradientCanary`, which an audit inserts and which has the same
    methods.

    Arguments:
        gradient: The gradient before clipping, flat.
        clip_norm: C, the norm that the training claims to clip to.
        asked: Collects the names of the methods that the training called.

    Example:
        >>> canary = ShapedCanary(gradient=np.array([3.0, 4.0]), clip_norm=1.0)
        >>> canary.clipped_sum(True)
        array([0.6, 0.8])
        >>> canary.rows(False).shape
        (0, 2)
    """

    gradient: Array
    clip_norm: float
    asked: set[str] = field(default_factory=set, repr=False)

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""
        return len(self.gradient)

    @property
    def count(self) -> int:
        """Always one."""
        return 1

    @property
    def norm(self) -> float:
        """The norm before clipping."""
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(self.gradient))

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradient as one row if it is inserted, else no row."""
        self.asked.add("rows")
        return self.gradient[None, :] if _coin(inserted) else np.zeros((0, self.parameters))

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The gradient after correct clipping; zero if an entry is not finite."""
        self.asked.add("clipped_sum")
        if not _coin(inserted) or not np.all(np.isfinite(self.gradient)):
            return np.zeros(self.parameters)
        largest = float(np.abs(self.gradient).max())
        if largest == 0:
            return np.zeros(self.parameters)
        # Divided by its largest entry first: the square of 1e300 overflows.
        norm = float(np.linalg.norm(self.gradient / largest))
        length = min(self.clip_norm, norm * largest)
        return self.gradient / largest * (length / norm)

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against the gradient."""
        moved = np.asarray(final, dtype=np.float64)
        if initial is not None:
            moved = moved - np.asarray(initial, dtype=np.float64)
        direction = self.clipped_sum(True)
        length = float(np.linalg.norm(direction)) or 1.0
        return np.array([-float(moved @ direction) / length])


def _coin(inserted: ArrayLike) -> bool:
    coins = np.atleast_1d(np.asarray(inserted, dtype=bool))
    if coins.shape != (1,):
        raise InvalidInput(f"inserted must be one coin for one canary, got shape {coins.shape}")
    return bool(coins[0])
