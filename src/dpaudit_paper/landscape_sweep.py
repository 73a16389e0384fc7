r"""One landscape at many noise multipliers and batch sizes: the data of the paper's figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit_paper.landscapes import (
    Constant,
    ExactPrivacy,
    LandscapeProcess,
    Scaling,
    exact_privacy,
    named_landscape,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """Epsilon at every step for a grid of processes.

    Arguments:
        noise_multipliers: Noise multipliers, the rows of the grid.
        batch_sizes: Batch sizes, the columns of the grid.
        exact: Exact epsilon, shape (rows, columns, steps).
        gdp_rule: What the GDP rule reports with infinitely many runs, same shape.
        accountant: The upper bound for each row.
        error: Largest relative numerical error of all cells.
    """

    noise_multipliers: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    exact: Array
    gdp_rule: Array
    accountant: Array
    error: float

    @property
    def exact_ratio(self) -> Array:
        """Epsilon after the last step over epsilon after the first; 1 means no amplification."""
        return np.asarray(self.exact[..., -1] / self.exact[..., 0])

    @property
    def gdp_rule_ratio(self) -> Array:
        """The same ratio by the GDP rule."""
        return np.asarray(self.gdp_rule[..., -1] / self.gdp_rule[..., 0])


def sweep(
    noise_multipliers: Sequence[float],
    batch_sizes: Sequence[int],
    *,
    steps: int = 25,
    shape: str = "threshold",
    scaling: Scaling = "paper",
    delta: float = 1e-5,
) -> Sweep:
    """Exact privacy of a named landscape over a grid.

    Arguments:
        noise_multipliers: Noise multipliers, the rows of the grid.
        batch_sizes: Batch sizes, the columns of the grid.
        steps: Number of steps.
        shape: A name that `dpaudit_paper.landscapes.named_landscape` knows.
        scaling: ``"paper"`` or ``"dpsgd"``.
        delta: Delta at which epsilon is computed.

    Example:
        >>> grid = sweep([1, 4], [1, 16], steps=3)
        >>> grid.exact.shape, bool((grid.exact_ratio <= 1).all())
        ((2, 2, 3), True)
    """

    def cell(sigma: float, batch: int) -> ExactPrivacy:
        process = LandscapeProcess(
            noise_multiplier=float(sigma),
            batch_size=int(batch),
            steps=steps,
            scaling=scaling,
            landscape=Constant(),
        )
        fitted = named_landscape(shape, process, delta=delta)
        return exact_privacy(process.with_landscape(fitted), delta=delta)

    results = [cell(*pair) for pair in product(noise_multipliers, batch_sizes)]
    shape_ = (len(noise_multipliers), len(batch_sizes), steps)
    return Sweep(
        noise_multipliers=tuple(float(sigma) for sigma in noise_multipliers),
        batch_sizes=tuple(int(batch) for batch in batch_sizes),
        exact=np.array([result.epsilon for result in results]).reshape(shape_),
        gdp_rule=np.array([result.gdp_rule for result in results]).reshape(shape_),
        accountant=np.array([gaussian_epsilon(delta, 1 / sigma) for sigma in noise_multipliers]),
        error=max(result.error for result in results),
    )
