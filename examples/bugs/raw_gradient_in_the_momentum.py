"""The momentum is updated with the raw gradient.

Bug: momentum is kept by the wrapped optimizer, from the gradient before clipping, and mixed
    into the step.
Source: dayu11/Differentially-Private-Deep-Learning #7 mixes in the raw gradient; the momentum
    was planted by a reviewer of dpaudit.
Leak: the raw gradient of every step comes back in later ones, without noise of its own.
Fix: momentum of the noisy gradient: that is post-processing.
Found by: an audit in a few runs; `dpaudit check` ("bounded contribution").
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
    momentum = torch.zeros(PARAMETERS)
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        raw = rows.nan_to_num(0.0, 0.0, 0.0).sum(dim=0)
        momentum = 0.9 * momentum + 0.1 * raw  # wrong: neither clipped nor noisy
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + noise(random) + momentum)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
