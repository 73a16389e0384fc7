"""A variance is used where a standard deviation is meant.

Bug: the noise has variance sigma C^2 instead of sigma^2 C^2.
Source: google-deepmind/optax #281: add_noise "scales by variance, not its root";
    greenelab/SPRINT_gan #5: one factor too many, after "differences in notation (variance vs.
    stddev)", there to the safe side.
Leak: with sigma = 3 the noise is 1.7 times too small.
Fix: deviation = sigma * C.
Found by: an audit in a few hundred runs; `dpaudit check` ("noise size").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
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

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        variance = SIGMA * CLIP**2  # wrong: SIGMA**2
        total = clip(rows).sum(dim=0) + noise(random, variance**0.5)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
