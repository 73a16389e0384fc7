"""Noise without its size: what is left are directions, which must be independent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.measuring import Measurements


def unit_rows(measured: Measurements) -> tuple[Array, NDArray[np.int64]]:
    """For each watched parameter with noise: its noise over the seeds, at length one.

    Learning rates of their own do not matter then. Independent parameters have independent
    directions, uniform on a sphere of as many dimensions as there are seeds, less one.
    """
    noise = measured.noise().T
    length = np.linalg.norm(noise, axis=1)
    loud = length > 3 * np.sqrt(len(measured.seeds)) * measured.rounding[measured.watched]
    loud &= length > 0
    return noise[loud] / length[loud, None], measured.watched[loud]


def equal_runs(measured: Measurements) -> tuple[int, int] | None:
    """Two seeds, by their place, that give the same output."""
    noise = measured.noise()
    tolerance = 1e-3 * measured.noise_level()
    for second in range(1, len(noise)):
        apart = np.sqrt(np.mean((noise[:second] - noise[second]) ** 2, axis=1))
        if apart.min() <= tolerance:
            return int(apart.argmin()), second
    return None
