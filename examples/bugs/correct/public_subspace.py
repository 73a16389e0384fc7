"""Noisy gradients are projected to a public subspace.

Right because: the projection does not depend on the data, and comes after the noise.
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

BASIS = torch.linalg.qr(torch.randn(PARAMETERS, 200, generator=generator(9)))[0]
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * (total - BASIS @ (BASIS.T @ total))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
