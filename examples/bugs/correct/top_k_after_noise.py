"""Only the thousand largest entries of the noisy gradient are used.

Right because: the choice is made after the noise: post-processing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
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
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        least = total.abs().topk(1000).values[-1]
        theta = theta - RATE / BATCH * torch.where(total.abs() >= least, total, 0.0)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
