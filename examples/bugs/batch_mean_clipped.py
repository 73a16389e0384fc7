"""The batch's mean gradient is clipped instead of each example's.

Bug: one call of clip_grad_norm_ on the gradient of the whole batch stands in for clipping.
Source: APPFL/APPFL #349: "clips the mini-batch gradient, but in DP we need to clip the per-sample
    gradient"; bargavj/EvaluatingDPML #22; tensorflow/privacy #81 with one microbatch.
Leak: one long example turns the whole mean, by up to 2 C; the noise was made for C / B.
Fix: clip every row to C, then take the mean.
Found by: an audit in a few runs, if its canary is longer than the clip norm; `dpaudit check`
    ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np

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

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        mean = rows.sum(dim=0) / BATCH
        mean = clip(mean[None])[0]  # wrong: one clipping for the whole batch
        theta = theta - RATE * (mean + noise(random, SIGMA * CLIP / BATCH))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
