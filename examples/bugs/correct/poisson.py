"""Poisson sampling, accounted for as Poisson sampling.

Right because: every example, the canary too, joins a batch by a coin of its own, and the divisor is
    the expected size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
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

EXAMPLES, STEPS, SIGMA = 128, 9, 1.0
RATE_OF_SAMPLING = BATCH / EXAMPLES
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS, sampling_rate=RATE_OF_SAMPLING)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    features, classes = housing()
    for _step in range(steps):
        coins = torch.rand(EXAMPLES + 1, generator=random) < RATE_OF_SAMPLING
        chosen = coins[:EXAMPLES].nonzero()[:, 0]
        genuine = example_gradients(theta, features[chosen], classes[chosen])
        rows = torch.cat([genuine, crafted_rows(canary, bool(inserted) and bool(coins[-1]))])
        total = clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
