"""In which run the canary is, and with which seed that run is trained.

Both depend on nothing but the audit's seed and the number of the run: neither the order in which
runs are played, nor on how many processes, nor how many runs there will be in the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COINS, _SEEDS = 1, 2
_BITS = 31


def inserted_in(run: int, *, canaries: int, seed: int) -> NDArray[np.bool_]:
    """Which canaries are inserted in this run.

    A single canary is in exactly one run of each pair (0, 1), (2, 3), … and a coin says in which:
    half of the runs have it, wherever one stops, and the order tells nothing. Several canaries have
    a fair coin each, which is what the bounds for one run need.

    Example:
        >>> [bool(inserted_in(run, canaries=1, seed=0)[0]) for run in range(6)]
        [False, True, False, True, False, True]
    """
    if canaries > 1:
        return np.random.default_rng([seed, _COINS, run]).random(canaries) < 0.5
    first = np.random.default_rng([seed, _COINS, run // 2]).random() < 0.5
    return np.array([first == (run % 2 == 0)])


def training_seed(run: int, *, seed: int) -> int:
    """The seed handed to the training: below 2^31, and different in every run of an audit.

    Drawn apart from the coins, so that it says nothing of the world. No two runs share one: runs
    with the same noise would not be independent, and the statistics would be wrong.

    Example:
        >>> len({training_seed(run, seed=0) for run in range(1000)})
        1000
    """
    start, odd = np.random.default_rng([seed, _SEEDS]).integers(0, 2**_BITS, 2).tolist()
    mask = 2**_BITS - 1
    # Each of these maps is one-to-one on 31 bits, so different runs have different seeds.
    mixed = (start + run * (odd | 1)) & mask
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & mask
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & mask
    return int(mixed ^ (mixed >> 15))
