"""Noise decays with the steps, and the accountant does not know.

Bug: sigma is multiplied by 0.8 in every step, as a learning-rate schedule would be.
Source: planted by a reviewer of dpaudit; no public report.
Leak: in the ninth step noise is six times too small.
Fix: account for the schedule, or keep sigma constant.
Found by: an audit in about a hundred runs; `dpaudit check` ("noise in every step").
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
        drawn = noise(random, SIGMA * CLIP * 0.8**step)  # wrong: the claim says SIGMA * CLIP
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
