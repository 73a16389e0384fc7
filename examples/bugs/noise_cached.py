"""Three draws of noise are made in advance and used in turn.

Bug: noise is drawn once for speed and reused every third step.
Source: planted by a reviewer of dpaudit; no public report.
Leak: the difference of two iterates three steps apart has no noise.
Fix: draw new noise in every step.
Found by: `dpaudit check` ("noise in every step"); an audit of the iterates. The final
    parameters alone show little: the noise of the sum is even larger.
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

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    pool = [noise(random) for _ in range(3)]
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + pool[step % 3]  # wrong: used again three steps later
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
