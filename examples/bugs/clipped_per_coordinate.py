"""Every coordinate is clipped to C on its own.

Bug: gradients are clamped to [-C, C] entry by entry.
Source: arXiv 2303.00654 warns of other norms; planted by a reviewer of dpaudit.
Leak: an example contributes up to C in each of 2,882 coordinates: 54 C in all.
Fix: clip by the Euclidean norm of the whole gradient.
Found by: an audit with a canary in a random direction in a few runs (a canary along one axis
    sees nothing); `dpaudit check` ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    PARAMETERS,
    RATE,
    STEPS,
    CraftedCanary,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

SIGNS = 2.0 * (torch.rand(PARAMETERS, generator=generator(5)) < 0.5) - 1
canary = CraftedCanary(direction=SIGNS / PARAMETERS**0.5, norm=100.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted).nan_to_num(0.0, 0.0, 0.0)
        total = rows.clamp(-CLIP, CLIP).sum(dim=0) + noise(random)  # wrong: the norm is not bounded
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
