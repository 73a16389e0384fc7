"""Biases get no noise.

Bug: noise is added to tensors of two dimensions only, as weight decay often is.
Source: planted by a reviewer of dpaudit; no public report.
Leak: 98 of 2,882 parameters show every example exactly.
Fix: noise in every tensor that the optimizer trains.
Found by: an audit with a canary in every tensor in a few runs, which names the bias; `dpaudit
    check` ("noise in every parameter").
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

EDGES = np.cumsum((0, *SIZES))
BIASES = np.concatenate([np.arange(EDGES[i], EDGES[i + 1]) for i in (1, 3, 5)])
canary = CraftedCanary(direction=axis(int(BIASES[5])), norm=10.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = noise(random)
        drawn[BIASES] = 0.0  # wrong: biases are parameters too
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
