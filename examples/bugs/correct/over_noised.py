"""The noise has the clip norm squared in its deviation, and the clip norm is 2.

Right because: more noise than claimed is no violation.
Source: greenelab/SPRINT_gan #5 (one factor of the clip norm too many); the same side as
    google-deepmind/jax_privacy #383 (noise for the sum added to the mean).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
    SIGMA,
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

CLIP = 2.0
canary = axis_canary(clip_norm=CLIP)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows, CLIP).sum(dim=0) + noise(random, SIGMA * CLIP**2)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
