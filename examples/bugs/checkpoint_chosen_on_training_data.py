"""The checkpoint with the best loss on the training data is released.

Bug: the choice looks at the training data, the canary included, without noise.
Source: arXiv 2110.03620 treats private selection; this form was planted by a reviewer of
    dpaudit.
Leak: the canary takes part in the choice: the released iterate is the one that fits it best.
Fix: choose on public data, or account for the choice (arXiv 2110.03620).
Found by: an audit in a few hundred runs, if the canary has a loss of its own; `dpaudit check`
    ("effect against noise"), which compares the effect of all steps with the noise.
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
    axis_canary,
    batch,
    clip,
    crafted_rows,
    generator,
    gradients,
    logits,
    moved,
    noise,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM
EXAMPLE = 10.0
"""The loss of the canary as an example: its gradient is along the axis, and its loss is linear."""


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta, best = generator(seed), start(), None
    direction = crafted_rows(canary, True).sum(dim=0)
    for step in range(steps):
        total = clip(gradients(theta, step, canary, inserted)).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
        loss = torch.nn.functional.cross_entropy(logits(theta, batch(step)[0]), batch(step)[1])
        if bool(inserted):
            loss = loss + EXAMPLE * float(direction @ (theta - start()))  # wrong: not private
        if best is None or float(loss) < best[0]:
            best = (float(loss), step, theta)
    return moved(best[2]) if steps == STEPS else moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
