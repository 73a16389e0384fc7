"""Noise without its size: what is left are directions, which must be independent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.measuring import Array, Measurements


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
