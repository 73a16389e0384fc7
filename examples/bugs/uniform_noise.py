"""Noise is uniform, with the right variance.

Bug: random numbers between -sqrt(3) sigma C and sqrt(3) sigma C stand in for Gaussian ones.
Source: planted by a reviewer of dpaudit; no public report.
Leak: an update outside of that range proves that the example took part: no finite epsilon holds
    at delta 0, and Gaussian accounting does not apply.
Fix: Gaussian noise.
Found by: `dpaudit check` ("Gaussian noise"). An audit of the final parameters sees nothing:
    nine uniform numbers add up to nearly a Gaussian one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    PARAMETERS,
    RATE,
    SIGMA,
    STEPS,
    axis_canary,
    clip,
    generator,
    gradients,
    moved,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = 3**0.5 * SIGMA * CLIP * (2 * torch.rand(PARAMETERS, generator=random) - 1)  # wrong
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
