"""The standard deviation of the noise is sigma sqrt(C), not sigma C.

Bug: a variance of sigma^2 C is read as the variance of the mechanism, whose variance is sigma^2
    C^2.
Source: the confusion of variance and deviation in google-deepmind/optax #281; this form was
    planted by a reviewer of dpaudit.
Leak: noise is sqrt(C) times too small for C above 1: 1.7 times at C = 3.
Fix: deviation = sigma * C.
Found by: an audit in about a hundred runs; `dpaudit check` ("noise size").
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

CLIP_NORM = 3.0
canary = axis_canary(clip_norm=CLIP_NORM)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = noise(random, SIGMA * CLIP_NORM**0.5)  # wrong: SIGMA * CLIP_NORM
        theta = theta - RATE / BATCH * (clip(rows, CLIP_NORM).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
