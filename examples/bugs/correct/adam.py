"""Adam, fed with private gradients.

Right because: its moments are functions of noisy sums: post-processing. greenelab/SPRINT_gan #5
    wondered, and came to the same answer.
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
    optimizer = torch.optim.Adam([theta], lr=RATE)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta.grad = total / BATCH
        optimizer.step()
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
