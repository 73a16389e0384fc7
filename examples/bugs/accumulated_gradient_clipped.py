"""The gradient accumulated over four examples is clipped, not each example.

Bug: clipping comes after accumulation, in parts of four examples.
Source: tensorflow/privacy #81 clips means of microbatches; the accumulated form is common in
    loops with gradient accumulation.
Leak: in its part one long example replaces the others: it changes the sum by up to 2 C.
Fix: clip every example, then accumulate.
Found by: an audit with a canary inside a full part in a few hundred runs (alone it sees
    nothing); `dpaudit check` ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
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

DIRECTION = axis(1234)
canary = CraftedCanary(direction=DIRECTION, norm=100.0, companions=-2 * DIRECTION.repeat(3, 1))
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        rows = torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0)
        parts = [part.sum(dim=0) for part in rows.split(4)]
        total = clip(torch.stack(parts)).sum(dim=0) + noise(random)  # wrong: sums are clipped
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
