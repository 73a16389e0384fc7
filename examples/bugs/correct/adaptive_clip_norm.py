"""The clip norm adapts by a noisy count, and the noise has the clip norm of its own step.

Right because: the noise is that of the clip norm that the gradients were clipped to, and the claim
    counts the noisy count, too (Andrew et al. 2021).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLIP,
    RATE,
    axis_canary,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)
from bugs.noise_of_an_updated_clip_norm import SIGMA, STEPS, adapted, claim

canary = axis_canary()


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta, norm = generator(seed), start(), CLIP
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows, norm).sum(dim=0) + noise(random, SIGMA * norm)
        norm = adapted(norm, rows, random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
