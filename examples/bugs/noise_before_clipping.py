"""Noise is added first, and the noisy sum is clipped.

Bug: clipping comes too late to bound what an example contributes.
Source: illidanlab/dpgan #4: "you first add noise to the gradients and then clip the gradient";
    NVIDIA/NVFlare #462: "why the noising is done within the clipping operation?".
Leak: what is clipped afterwards is post-processing; what was noised was not bounded.
Fix: clip every row, sum, then add noise.
Found by: an audit in a few runs; `dpaudit check` ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
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
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        noisy = rows.sum(dim=0) + noise(random)
        total = clip(noisy[None], BATCH * CLIP)[0]  # wrong: after the noise, and all at once
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
