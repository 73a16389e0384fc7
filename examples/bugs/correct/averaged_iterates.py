"""The average of all iterates is released.

Right because: an average of noisy iterates is post-processing.
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
    total = torch.zeros(PARAMETERS)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + noise(random))
        total = total + theta
    return moved(total / steps)


if __name__ == "__main__":
    show(train, canary, claim)
