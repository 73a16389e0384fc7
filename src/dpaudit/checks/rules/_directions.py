"""Noise without its size: the direction of each parameter's noise over the seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.checks.limits import FALSE_ALARM
from dpaudit.checks.measuring import Measurements


@final
@dataclass(frozen=True, kw_only=True)
class Directions:
    """For each watched parameter with noise: its noise over the seeds, scaled to length one.

    Directions do not depend on learning rates. Those of independent Gaussian noise are independent
    and uniform on the sphere in (number of seeds - 1) dimensions.

    Arguments:
        rows: One direction for each parameter.
        error: Rounding error of the entries of each row.
        places: Index of the parameter of each row.
    """

    rows: Array
    error: Array
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


FEWEST = 8
"""With fewer directions than this, dependence is not judged."""

TOLERANCE = 4.0
"""Directions that differ by at most so many rounding errors count as equal."""


_FINEST = 0.1  # of the noise: rounding that leaves the shape of the noise as it is


def noise_directions(measured: Measurements, noise: Array | None = None) -> Directions:
    """The directions of all parameters whose noise is well above rounding.

    Arguments:
        measured: The measurements.
        noise: A larger sample of noise; that of all rules by default.
    """
    noise = (measured.noise() if noise is None else noise).T
    length = np.linalg.norm(noise, axis=1)
    rounding = measured.rounding[measured.watched]
    count, seeds = noise.shape
    # Two entries agree by chance with probability 2 TOLERANCE times the sum of two errors times a
    # density below 0.4; two rows in all but two entries; and there are fewer than count^2 pairs.
    agreeing = (FALSE_ALARM / count**2) ** (1 / (seeds - 2))
    blur = min(_FINEST, agreeing / (2 * 0.4 * 2 * TOLERANCE))
    loud = (length > 0) & (rounding * np.sqrt(seeds) <= blur * length)
    return Directions(
        rows=noise[loud] / length[loud, None],
        error=rounding[loud] / length[loud],
        places=measured.watched[loud],
    )


def equal_runs(measured: Measurements) -> tuple[int, int] | None:
    """The positions of two seeds that give the same output, if there are such."""
    noise = measured.noise()
    floor = 10 * float(np.sqrt(np.mean(measured.rounding[measured.watched] ** 2)))
    tolerance = min(1e-3 * measured.noise_level(), floor)
    for second in range(1, len(noise)):
        apart = np.sqrt(np.mean((noise[:second] - noise[second]) ** 2, axis=1))
        if apart.min() <= tolerance:
            return int(apart.argmin()), second
    return None
