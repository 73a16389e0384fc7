"""The coins and the seed of a run of a user's training.

They depend only on the audit's seed and the number of the run, not on the order of the runs, the
number of processes or the number of runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Coins = NDArray[np.bool_]

_COINS, _SEEDS = 1, 2
_BITS = 31


def inserted_in(run: int, *, canaries: int, seed: int) -> Coins:
    """Which canaries are inserted in this run.

    A single canary is in exactly one run of each pair (0, 1), (2, 3), …, and a coin decides in
    which one. Half of the runs have it, wherever the audit stops. Each of several canaries has a
    fair coin, which the bounds for one run require.

    Example:
        >>> [bool(inserted_in(run, canaries=1, seed=0)[0]) for run in range(6)]
        [False, True, False, True, False, True]
    """
    if canaries > 1:
        return np.random.default_rng([seed, _COINS, run]).random(canaries) < 0.5
    first = np.random.default_rng([seed, _COINS, run // 2]).random() < 0.5
    return np.array([first == (run % 2 == 0)])


def training_seed(run: int, *, seed: int) -> int:
    """The seed passed to the training: below 2^31, and different in every run of an audit.

    It is independent of the coins, so that it does not reveal them. Runs with the same seed would
    have the same noise, and the statistics require independent runs.

    Example:
        >>> len({training_seed(run, seed=0) for run in range(1000)})
        1000
    """
    start, odd = np.random.default_rng([seed, _SEEDS]).integers(0, 2**_BITS, 2).tolist()
    mask = 2**_BITS - 1
    # Each of these maps is a bijection of 31 bits, so different runs have different seeds.
    mixed = (start + run * (odd | 1)) & mask
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & mask
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & mask
    return int(mixed ^ (mixed >> 15))
