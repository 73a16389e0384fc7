"""No noise is added.

Bug: the noise multiplier is still 0, as it was left after a search for a good clip norm.
Source: meta-pytorch/opacus #115: clipping alone, the engine asked for no noise; tensorflow/privacy
    #136: what epsilon is without noise.
Leak: the training is a function of the data: one run with the canary is proof.
Fix: noise_multiplier=3.0, the number that the accountant uses.
Found by: an audit in a few runs; `dpaudit check` ("noise in every parameter").
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
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    _random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0)  # wrong: the noise is missing
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
