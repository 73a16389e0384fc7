"""Gradients are averaged in microbatches of four, and the averages are clipped.

Bug: noise of deviation sigma C is made for a contribution of C, but an example decides the
    direction of a whole microbatch.
Source: tensorflow/privacy #81 (are microbatches private?) and #620, which quotes the answer: the
    sensitivity doubles (arXiv 2303.00654, section 5.6).
Leak: a microbatch that pointed one way points the other way with the canary: 2 C, not C.
Fix: microbatches of one example; or noise of deviation 2 sigma C.
Found by: an audit whose data set has a companion that pulls the canary's microbatch the other way
    (an ordinary canary sees only C); `dpaudit check` ("bounded contribution").
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
    axis,
    batch,
    clip,
    crafted_rows,
    example_gradients,
    generator,
    moved,
    noise,
    show,
    start,
)

MICROBATCH = 4
canary = CraftedCanary(
    direction=axis(500), norm=2000 * CLIP, companions=-1000 * CLIP * axis(500)[None]
)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        crafted = crafted_rows(canary, inserted)
        # The crafted rows share the first microbatch; the place of an absent canary stays empty.
        rows = torch.zeros(BATCH, PARAMETERS)
        rows[: len(crafted)] = crafted
        rows[2:] = example_gradients(theta, *batch(step))[2:]
        averages = rows.view(-1, MICROBATCH, PARAMETERS).mean(dim=1)
        total = clip(averages).sum(dim=0) + noise(random)  # wrong: averages, not examples
        theta = theta - RATE / len(averages) * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
