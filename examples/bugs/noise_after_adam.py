"""Noise is added to the update of Adam, not to the gradient.

Bug: Adam divides the clean gradient by its own size, and noise for the gradient is added after
    that.
Source: planted by a reviewer of dpaudit; no public report.
Leak: the update of an example is bounded by the learning rate in every coordinate, not by C: a
    gradient spread over all parameters moves all of them.
Fix: add noise to the clipped sum and give that to Adam.
Found by: `dpaudit check` ("noise size"), which measures the noise against the effect of an
    example; an audit with a canary over all parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    PARAMETERS,
    STEPS,
    CraftedCanary,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

SIGNS = 2.0 * (torch.rand(PARAMETERS, generator=generator(5)) < 0.5) - 1
canary = CraftedCanary(direction=SIGNS / PARAMETERS**0.5, norm=10.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    first = second = torch.zeros(PARAMETERS)
    for step in range(steps):
        total = clip(gradients(theta, step, canary, inserted)).sum(dim=0) / BATCH
        first = 0.9 * first + 0.1 * total
        second = 0.99 * second + 0.01 * total**2
        corrected = (second / (1 - 0.99 ** (step + 1))).sqrt() + 1e-8
        update = first / (1 - 0.9 ** (step + 1)) / corrected
        theta = theta - 0.01 * (update + noise(random) / BATCH)  # wrong: the noise comes too late
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
