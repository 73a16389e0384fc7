"""Batches of one example, where the canary is half of the batch.

Right because: the noise is for the sum, and does not care how many examples there are; the divisor
    is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    CLAIM,
    RATE,
    STEPS,
    axis_canary,
    batch,
    clip,
    crafted_rows,
    example_gradients,
    generator,
    moved,
    noise,
    show,
    start,
)

BATCH = 1
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        genuine = example_gradients(theta, *batch(step, BATCH))
        rows = torch.cat([genuine, crafted_rows(canary, inserted)])
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
