"""The clipped sum is never set back to zero.

Bug: the buffer of clipped gradients grows from step to step, and each step adds one noise to all.
Source: meta-pytorch/opacus PR #203, review of zero_grad: "in the second one you would have twice as
    much data points but only add noise that covers one batch worth of data".
Leak: in step t the canary is in the sum t times, under one draw of noise.
Fix: start every step with an empty sum.
Found by: an audit in a few runs; `dpaudit check` ("contribution to its own step only").
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
    summed = torch.zeros(PARAMETERS)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        summed = summed + clip(rows).sum(dim=0)  # wrong: keeps what was there
        theta = theta - RATE / BATCH * (summed + noise(random))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
