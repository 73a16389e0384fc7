"""Gradients of four parts of a batch are accumulated, and noise is added once.

Right because: clipping is for each example and noise for each update, whatever the parts are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
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

PARTS = 4
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        total = noise(random)
        for part in gradients(theta, step, canary, inserted).chunk(PARTS):
            total = total + clip(part).sum(dim=0)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
