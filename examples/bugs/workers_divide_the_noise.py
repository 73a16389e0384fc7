"""Each of four workers adds noise of deviation sigma C / 4.

Bug: the deviation is divided by the number of workers, where its square should be.
Source: meta-pytorch/opacus #635 asks how noise is split among workers; this form was planted by
    a reviewer of dpaudit.
Leak: the noise of the sum is half of what is claimed.
Fix: each worker adds noise of deviation sigma C / sqrt(W), or one adds all of it.
Found by: an audit in about fifty runs; `dpaudit check` ("noise size").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

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

WORKERS = 4
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = clip(gradients(theta, step, canary, inserted)).split(9)
        shares = [part.sum(dim=0) for part in rows]
        for worker in range(WORKERS):
            own = noise(random, SIGMA * CLIP / WORKERS)  # wrong: / WORKERS**0.5
            shares[worker % len(shares)] += own
        theta = theta - RATE / BATCH * torch.stack(shares).sum(dim=0)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
