"""A fresh random start in every run, which the adversary does not know.

Right because: the start does not depend on the data. It hides a little of the canary besides.
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
    noise,
    show,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random = generator(seed)
    theta = 0.1 * torch.randn(PARAMETERS, generator=random)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return theta.numpy().astype(np.float64)


if __name__ == "__main__":
    show(train, canary, claim)
