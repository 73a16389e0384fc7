"""A rare class is sampled four times as often as the accountant assumes.

Bug: a class-balanced sampler draws rare examples with a higher rate; the accountant is given
    the average rate.
Source: meta-pytorch/opacus #556 asks for weighted sampling with privacy; planted by a reviewer
    of dpaudit.
Leak: a rare example takes part in four times as many steps as claimed.
Fix: account with the largest rate of any example.
Found by: an audit with a canary of the rare class in a few dozen runs; `dpaudit check` cannot
    see it, since it does not know the sampling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    CLIP,
    RATE,
    axis_canary,
    clip,
    crafted_rows,
    example_gradients,
    generator,
    housing,
    moved,
    noise,
    show,
    start,
)
from dpaudit import Claim

EXAMPLES, RARE = 64, 8
LOT, SIGMA, UPDATES = 8, 1.0, 9
canary = axis_canary()
claim = Claim.from_dpsgd(  # wrong: the rate of the rare class is four times as high
    noise_multiplier=SIGMA, steps=UPDATES, sampling_rate=LOT / EXAMPLES
)


def train(canary: Any, inserted: Any, seed: int, steps: int = UPDATES) -> np.ndarray:
    random, theta = generator(seed), start()
    features, classes = housing()
    rates = torch.full((EXAMPLES + 1,), LOT / EXAMPLES)
    rates[-RARE:] *= 4  # the canary belongs to the rare class
    for _step in range(steps):
        coins = torch.rand(EXAMPLES + 1, generator=random) < rates
        part = coins[:EXAMPLES].nonzero()[:, 0]
        total = noise(random, SIGMA * CLIP)
        total += clip(example_gradients(theta, features[part], classes[part])).sum(dim=0)
        total += clip(crafted_rows(canary, bool(inserted) and bool(coins[-1]))).sum(dim=0)
        theta = theta - RATE / LOT * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
