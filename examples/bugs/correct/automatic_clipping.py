"""Every gradient is scaled to C |g| / (|g| + 0.01).

Right because: the result is shorter than C, however short or long the gradient is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    RATE,
    STEPS,
    axis_canary,
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
        rows = torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0)
        total = (CLIP * rows / (rows.norm(dim=1, keepdim=True) + 0.01)).sum(dim=0)
        theta = theta - RATE / BATCH * (total + noise(random))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
