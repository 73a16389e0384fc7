"""The released slow copy of the weights follows updates that have no noise.

Bug: a slow copy of the weights is updated from the clean sum, before the noise is added.
Source: planted by a reviewer of dpaudit; no public report.
Leak: the released model has no noise at all, although the trained one has.
Fix: update the copy from the noisy sum or iterate.
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
    noise,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    average = start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0)
        average = average - 0.5 * RATE / BATCH * total  # wrong: no noise yet
        theta = theta - RATE / BATCH * (total + noise(random))
    return moved(average)


if __name__ == "__main__":
    show(train, canary, claim)
