"""The noise of a weight matrix is one row, broadcast over all rows.

Bug: noise is drawn with the shape of the bias and broadcast to the matrix.
Source: planted by a reviewer of dpaudit; no public report.
Leak: differences between rows of the matrix have no noise.
Fix: draw noise with the shape of the parameter.
Found by: an audit that scores a difference of two rows in a few runs; `dpaudit check` ("noise
    differs between parameters").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
    SIZES,
    STEPS,
    CraftedCanary,
    axis,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

canary = CraftedCanary(direction=(axis(16) - axis(24)) / 2**0.5, norm=10.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = noise(random)
        drawn[: SIZES[0]] = drawn[:8].repeat(48)  # wrong: one row for all 48
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
