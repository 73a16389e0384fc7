"""The secret coins: which canaries are inserted in which run."""

from __future__ import annotations

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.noise import Stream
from dpaudit.games.game import Coin


def insertion_coins(*, seed: int, runs: int, canaries: int, coin: Coin) -> Tensor:
    """Whether each canary is inserted in each run, shape (runs, canaries), bool, on the CPU.

    Every (run, canary) has a random word. A fair coin is its highest bit. For ``"half"``, the runs
    with the smaller half of the words have the canary.

    Example:
        >>> insertion_coins(seed=0, runs=6, canaries=3, coin="half").sum(0).tolist()
        [3, 3, 3]
    """
    start = torch.zeros((), dtype=torch.int64)
    numbers = torch.arange(runs)
    words = noise.words(noise.key(seed), Stream.INSERTION, numbers, start, canaries)[0]
    if coin == "fair":
        return words.ge(2**31)
    rank: Tensor = words.argsort(dim=0, stable=True).argsort(dim=0)
    return rank.lt(runs // 2)
