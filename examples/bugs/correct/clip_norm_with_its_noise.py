"""The clip norm decays with the steps, and the noise with it.

Right because: noise over sensitivity is the same in every step, and that is all that the claim
    says.
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
        rows = clip(gradients(theta, step, canary, inserted), CLIP * 0.9**step)
        total = rows.sum(dim=0) + noise(random, SIGMA * CLIP * 0.9**step)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
