"""Noise is multiplied by the learning rate twice.

Bug: the noise is scaled by the learning rate before it is added to a sum that is scaled by it
    again.
Source: planted by a reviewer of dpaudit; no public report.
Leak: noise is ten times too small at a learning rate of 0.1.
Fix: add unscaled noise to the clipped sum, then multiply both by the learning rate.
Found by: an audit in a few runs; `dpaudit check` ("noise size").
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
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + RATE * noise(random)  # wrong: the next line scales it again
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
