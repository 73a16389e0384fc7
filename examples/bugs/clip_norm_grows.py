"""The clip norm grows with the steps, and the noise does not.

Bug: an adaptive clip norm is raised by 30 % in every step, with noise for the first one.
Source: planted by a reviewer of dpaudit; no public report.
Leak: in the ninth step an example contributes eight times what the noise was made for.
Fix: scale the noise with the clip norm of the step.
Found by: an audit in a few dozen runs; `dpaudit check` ("noise in every step").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
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
        rows = clip(gradients(theta, step, canary, inserted), CLIP * 1.3**step)
        theta = theta - RATE / BATCH * (rows.sum(dim=0) + noise(random))  # wrong: noise for CLIP
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
