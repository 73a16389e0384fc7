"""Only the signs of the noisy gradient are used.

Right because: signs of a noisy sum are post-processing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    CLAIM,
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
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - 0.01 * total.sign()
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
