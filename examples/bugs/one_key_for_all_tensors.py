"""Every parameter tensor gets its noise from the same random key.

Bug: two tensors of one shape get the same noise, and their difference gets none.
Source: jax-ml/jax PR #3646: the differential privacy example reused one key for all components.
Leak: a gradient along +e in one bias and -e in the other is seen without noise.
Fix: a key of its own for each tensor (jax.random.split), or one generator for all.
Found by: an audit with a canary across two tensors of one shape (a canary along one axis sees
    nothing); `dpaudit check` ("noise differs between parameters").
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
    SIZES,
    STEPS,
    CraftedCanary,
    axis,
    clip,
    generator,
    gradients,
    moved,
    show,
    start,
)

FIRST_BIAS, SECOND_BIAS = sum(SIZES[:1]), sum(SIZES[:3])
canary = CraftedCanary(
    direction=(axis(FIRST_BIAS + 7) - axis(SECOND_BIAS + 7)) / 2**0.5, norm=10 * CLIP
)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        key = int(torch.randint(2**62, (), generator=random))
        parts = [torch.randn(size, generator=generator(key)) for size in SIZES]  # wrong: one key
        total = clip(rows).sum(dim=0) + SIGMA * CLIP * torch.cat(parts)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
