"""Gradients are clipped by their L1 norm.

Right because: the L2 norm is at most the L1 norm, so an example contributes at most C.
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
        norms = rows.abs().sum(dim=1, keepdim=True)
        total = (rows * (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)).sum(dim=0)
        theta = theta - RATE / BATCH * (total + noise(random))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
