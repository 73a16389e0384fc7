"""A crafted gradient of any shape, with the methods of a `GradientCanary`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit.trainings.coins import coins_of


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
        only: The canary takes part only in these calls of `rows` or `clipped_sum`, counted from 0;
            in all of them by default.
        companions: Rows that are always there, also without the canary.

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
    only: range | None = None
    companions: Array | None = None
    _calls: list[bool] = field(default_factory=list, repr=False)

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
        beside = np.zeros((0, self.parameters)) if self.companions is None else self.companions
        present = self._present("rows", inserted)
        if not present and not (self.only is not None and _coin(inserted)):
            return beside
        # In the steps that it is left out of, the canary is an example with a zero gradient.
        return np.vstack([beside, self.gradient if present else np.zeros(self.parameters)])

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The gradient after correct clipping; zero if an entry is not finite."""
        present = self._present("clipped_sum", inserted)
        return self._clipped() if present else np.zeros(self.parameters)

    @property
    def calls(self) -> int:
        """Number of calls of `rows` and `clipped_sum` so far."""
        return len(self._calls)

    @property
    def took_part(self) -> bool:
        """Whether the canary was in any call so far."""
        return any(self._calls)

    def _present(self, method: str, inserted: ArrayLike) -> bool:
        self.asked.add(method)
        present = _coin(inserted) and (self.only is None or self.calls in self.only)
        self._calls.append(present)
        return present

    def _clipped(self) -> Array:
        if not np.all(np.isfinite(self.gradient)):
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
        direction = self._clipped()
        length = float(np.linalg.norm(direction)) or 1.0
        return np.array([-float(moved @ direction) / length])


def _coin(inserted: ArrayLike) -> bool:
    return bool(coins_of(inserted, 1)[0])
