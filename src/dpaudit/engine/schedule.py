"""All batches of a training in one table of fixed width, for compiled code with fixed shapes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.mechanisms.batches import BatchPlan


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """The examples of each step. Batches that occur several times are stored once.

    Arguments:
        batches: The different batches, shape (distinct, width), padded with example 0.
        present: 1 for examples, 0 for padding, shape (distinct, width).
        at: The index of each step's batch, shape (steps,).
    """

    batches: NDArray[np.int64]
    present: NDArray[np.float32]
    at: NDArray[np.int64]

    @property
    def width(self) -> int:
        """Number of examples in every padded batch."""
        return int(self.batches.shape[1])


def schedule(plan: BatchPlan, steps: int, examples: int) -> Schedule:
    """The batches of the first ``steps`` steps on ``examples`` examples.

    Example:
        >>> from dpaudit.mechanisms.batches import FixedBatches
        >>> schedule(FixedBatches(batch_size=2), 4, 5).at.tolist()
        [0, 1, 0, 1]
    """
    make = _remembered if isinstance(plan, Hashable) else _schedule  # a user's plan may not be
    return make(plan, steps, examples)


def _schedule(plan: BatchPlan, steps: int, examples: int) -> Schedule:
    known: dict[bytes, int] = {}
    rows: list[NDArray[np.int64]] = []
    at = np.empty(steps, dtype=np.int64)
    for step in range(steps):
        indices = plan.indices(step, examples)
        place = known.setdefault(indices.tobytes(), len(rows))
        if place == len(rows):
            rows.append(indices)
        at[step] = place
    width = max(1, *(len(row) for row in rows)) if rows else 1
    batches = np.zeros((len(rows), width), dtype=np.int64)
    present = np.zeros((len(rows), width), dtype=np.float32)
    for place, row in enumerate(rows):
        batches[place, : len(row)] = row
        present[place, : len(row)] = 1
    return Schedule(batches=batches, present=present, at=at)


_remembered = lru_cache(maxsize=8)(_schedule)
