"""Noise meant for the mean of the batch is added to the sum.

Bug: the noise's standard deviation is divided by the batch size once, and the update once more.
Source: Tramer et al., Debugging Differential Privacy (arXiv 2202.12219): a sensitivity too small by
    the batch size. The reverse, harmless for privacy, is google-deepmind/jax_privacy #383.
Leak: the noise is B = 32 times smaller than the accountant assumes.
Fix: add noise of deviation sigma C to the sum, then divide both by B.
Found by: an audit in a few runs; `dpaudit check` ("noise size").
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
        total = clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP / BATCH)  # wrong: / BATCH
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
