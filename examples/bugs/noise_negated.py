"""Every second step subtracts the noise of the step before.

Bug: antithetic draws, meant to reduce variance: noise +z, then -z.
Source: planted by a reviewer of dpaudit; no public report.
Leak: the sum of two updates has no noise.
Fix: draw new noise in every step.
Found by: an audit in a few runs; `dpaudit check` ("noise in every step").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    PARAMETERS,
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
    drawn = torch.zeros(PARAMETERS)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = noise(random) if step % 2 == 0 else -drawn  # wrong: they cancel
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
