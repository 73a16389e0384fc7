"""A learning rate of its own for each of the six tensors, one of them frozen.

Right because: clipping is over all tensors together, before the groups scale anything; scaling a
    noisy sum is post-processing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    SIZES,
    STEPS,
    axis_canary,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

RATES = (0.1, 0.02, 0.3, 0.0, 0.05, 1.0)
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        groups = zip(total.split(SIZES), RATES, strict=True)
        theta = theta - torch.cat([rate * part for part, rate in groups]) / BATCH
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
