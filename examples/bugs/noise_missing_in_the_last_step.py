"""The last step is made without noise.

Bug: a final "polishing" step uses the clipped sum alone.
Source: planted by a reviewer of dpaudit; no public report.
Leak: the difference of the last two iterates shows the canary exactly; the final parameters
    less so.
Fix: noise in every step, also in the last.
Found by: `dpaudit check` ("noise in every step"), which looks at the last step too; an audit of
    the last update.
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
        deviation = 0.0 if step == STEPS - 1 else SIGMA * CLIP  # wrong: no noise at the end
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + noise(random, deviation))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
