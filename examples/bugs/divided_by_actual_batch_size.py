"""The update is divided by the number of examples that came, not by the number expected.

Bug: the size of the batch depends on the canary, and no noise hides it.
Source: meta-pytorch/opacus #571 (more leakage than accounted for at low sample size) and #819: two
    data sets "can become almost fully distinguishable" in high dimension; #420 asks for it.
Leak: one example more makes every coordinate of the noise smaller by n / (n + 1); thousands of
    coordinates reveal n, whatever the canary's gradient is.
Fix: divide by the expected batch size, a constant. (Where privacy means that an example may be
    exchanged for another, the size is no secret, and the sensitivity is 2 C.)
Found by: an audit that scores the length of the whole update (a score along the canary's axis sees
    little); `dpaudit check` ("noise independent of the data").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    CLAIM,
    RATE,
    STEPS,
    axis_canary,
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

BATCH = 4
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        genuine = example_gradients(theta, *batch(step, BATCH))
        rows = torch.cat([genuine, crafted_rows(canary, inserted)])
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / len(rows) * total  # wrong: len(rows) instead of BATCH
    return moved(theta)


def score(canary: Any, returned: np.ndarray) -> float:
    """A larger batch moves less."""
    return -float(np.linalg.norm(returned))


if __name__ == "__main__":
    show(train, canary, claim, score)
