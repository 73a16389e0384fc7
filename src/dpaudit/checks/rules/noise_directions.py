"""Noise without its size: what is left are directions, which must be independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.limits import FALSE_ALARM
from dpaudit.checks.measuring import Measurements


@final
@dataclass(frozen=True, kw_only=True)
class Directions:
    """For each watched parameter with noise: its noise over the seeds, at length one.

    Learning rates of their own do not matter then. Independent parameters have independent
    directions, uniform on a sphere of as many dimensions as there are seeds, less one.

    Arguments:
        rows: One direction a row.
        error: Rounding error of each entry, row by row.
        places: Which parameter a row belongs to.
    """

    rows: Array
    error: Array
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


TOLERANCE = 4.0
"""Directions are called the same if they differ by so many rounding errors."""


def noise_directions(measured: Measurements) -> Directions:
    """The directions of all parameters whose noise is clear of rounding."""
    noise = measured.noise().T
    length = np.linalg.norm(noise, axis=1)
    rounding = measured.rounding[measured.watched]
    count, seeds = noise.shape
    # Two entries agree by chance with probability 2 TOLERANCE times the sum of two errors times a
    # density below 0.4; two rows in all but two entries; and there are fewer than count^2 pairs.
    agreeing = (FALSE_ALARM / count**2) ** (1 / (seeds - 2))
    blur = agreeing / (2 * 0.4 * 2 * TOLERANCE)
    loud = (length > 0) & (rounding * np.sqrt(seeds) <= blur * length)
    return Directions(
        rows=noise[loud] / length[loud, None],
        error=rounding[loud] / length[loud],
        places=measured.watched[loud],
    )


def equal_runs(measured: Measurements) -> tuple[int, int] | None:
    """Two seeds, by their place, that give the same output."""
    noise = measured.noise()
    floor = 10 * float(np.sqrt(np.mean(measured.rounding[measured.watched] ** 2)))
    tolerance = min(1e-3 * measured.noise_level(), floor)
    for second in range(1, len(noise)):
        apart = np.sqrt(np.mean((noise[:second] - noise[second]) ** 2, axis=1))
        if apart.min() <= tolerance:
            return int(apart.argmin()), second
    return None
