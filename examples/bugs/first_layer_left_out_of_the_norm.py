"""The first layer is left out of the norm that decides the clipping.

Bug: per-example norms are computed over all tensors but the embedding, whose gradient is
    sparse.
Source: planted by a reviewer of dpaudit; no public report.
Leak: a gradient in the first layer is not clipped at all.
Fix: the norm over all tensors.
Found by: an audit with a canary in every tensor in a few runs; `dpaudit check`
    ("bounded contribution"), which names the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    RATE,
    SIZES,
    STEPS,
    CraftedCanary,
    axis,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

canary = CraftedCanary(direction=axis(17), norm=10.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        rows = rows[rows.isfinite().all(dim=1)]
        norms = rows[:, SIZES[0] :].norm(dim=1, keepdim=True)  # wrong: without the first tensor
        total = (rows * (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
