"""Momentum, weight decay and a learning rate that falls.

Right because: all three are computed from noisy sums and public numbers: post-processing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    PARAMETERS,
    RATE,
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

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    velocity = torch.zeros(PARAMETERS)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        velocity = 0.9 * velocity + total / BATCH + 0.01 * theta
        theta = theta - RATE / (1 + step) * velocity
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
