r"""A search for the strongest landscape of every batch: the drift is free in every cell and step.

Only the drift of step t is changed at a time. With :math:`m_t = p_{1,t} - e^\epsilon p_{0,t}` and
:math:`v_{t+1}` the probability of ending in the rejection region, delta is
:math:`\int m_t(x)\, E[v_{t+1}(x + d_t(x) + sZ)]\, dx`, which gives the best drift of every cell.
Sweeps go from the last step to the first: :math:`m_t` depends only on drifts that have not been
changed yet, so that a whole sweep never lowers delta at a fixed epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.adjoint import DriftGrid
from dpaudit.landscapes.composition import decision_point
from dpaudit.landscapes.landscapes import Constant, Threshold
from dpaudit.landscapes.moving_threshold import fitted_moving_threshold
from dpaudit.landscapes.privacy import ExactPrivacy, exact_privacy
from dpaudit.landscapes.table import Table
from dpaudit.mechanisms.landscape import BatchLandscapes, Landscape, LandscapeProcess

_SWEEPS = 40


@final
@dataclass(frozen=True, kw_only=True)
class BatchTables(BatchLandscapes):
    """A table for every step.

    Arguments:
        tables: The landscapes of steps 2, 3, …; later steps use the last one.
    """

    tables: tuple[Table, ...]

    def at(self, step: int) -> Landscape:
        return self.tables[min(max(step - 2, 0), len(self.tables) - 1)]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BatchSearch:
    """The strongest landscapes found, and the moving threshold that they are compared with.

    Arguments:
        privacy: The exact privacy of the landscapes found on the grid of the search.
        moving_threshold: The exact privacy of the fitted moving threshold, whose places are not
            bound to a grid.
        starts: Epsilon on the grid at the end of every start, by name.
    """

    privacy: ExactPrivacy
    moving_threshold: ExactPrivacy
    starts: dict[str, float]

    @property
    def epsilon(self) -> float:
        """The largest epsilon found at step T."""
        return float(max(self.privacy.epsilon[-1], self.moving_threshold.epsilon[-1]))


def search_batch_landscapes(
    process: LandscapeProcess, *, delta: float = 1e-5, random_starts: int = 1, seed: int = 0
) -> BatchSearch:
    """Maximise the exact epsilon at step T over landscapes that may differ from batch to batch.

    See also:
        `dpaudit.landscapes.search_landscape`, for one landscape for all batches.

    Arguments:
        process: Noise, batch size, steps and scaling, with one insertion; its landscape is not
            used.
        delta: Delta at which epsilon is computed.
        random_starts: Number of random starts besides a flat landscape and two thresholds.
        seed: Random seed of the random starts.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=4, steps=3, scaling="dpsgd", landscape=Constant()
        ... )
        >>> found = search_batch_landscapes(process, random_starts=0)
        >>> round(found.epsilon, 2)
        0.85
    """
    delta = _validate.between("delta", delta, 0, 1)
    if process.insertions(process.steps) > 1 or process.steps < 2:
        raise InvalidInput(
            "process must have one insertion and at least 2 steps for a search of batches, got "
            f"period {process.period!r} and {process.steps} steps; for periodic insertion use "
            "reading-wells"
        )
    moving = fitted_moving_threshold(process, delta=delta)
    grid = DriftGrid(process, delta, edge=moving.places[0])
    random = np.random.default_rng(seed)
    shape = (process.steps - 1, len(grid.cells))
    named: dict[str, Landscape] = {
        "flat": Constant(),
        "C/2": Threshold(),
        "decision point": Threshold(at=decision_point(process, delta=delta)),
    }
    starts = {name: np.tile(grid.sample(start), (shape[0], 1)) for name, start in named.items()}
    starts["moving threshold"] = np.stack(
        [grid.sample(moving.at(step)) for step in range(2, process.steps + 1)]
    )
    for index in range(random_starts):
        starts[f"random {index + 1}"] = process.reach * random.uniform(-1, 1, shape)
    ends = {name: _improved(grid, drifts) for name, drifts in starts.items()}
    best = max(ends.values(), key=lambda end: end[0])[1]
    tables = BatchTables(tables=tuple(grid.table(drift) for drift in best))
    return BatchSearch(
        privacy=exact_privacy(process.with_landscape(tables), delta=delta),
        moving_threshold=exact_privacy(process.with_landscape(moving), delta=delta),
        starts={name: epsilon for name, (epsilon, _) in ends.items()},
    )


def _improved(grid: DriftGrid, drifts: Array) -> tuple[float, Array]:
    """Sweeps of best replies, while epsilon grows."""
    best, reached = drifts, grid.batch_epsilon(drifts)
    for _ in range(_SWEEPS):
        trial = grid.batch_replies(best)
        now = grid.batch_epsilon(trial)
        if now <= reached + 1e-7:
            break
        best, reached = trial, now
    return reached, best
