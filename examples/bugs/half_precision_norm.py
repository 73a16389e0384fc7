"""Norms are computed in half precision, where small squares vanish.

Bug: entries below 0.00017 have squares that are zero in float16, so a gradient made of many such
    entries has norm zero and is not clipped.
Source: google-deepmind/jax_privacy PR #309: "the sum of squares can underflow to 0 - the tree is
    returned unclipped".
Leak: with C = 0.001, a gradient of 2,882 entries of 0.00016 passes with norm 0.0086.
Fix: rows.float().norm(dim=1).
Found by: an audit with a canary of many small entries (a canary along one axis sees nothing);
    `dpaudit check` ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bugs._common import (
    BATCH,
    CLAIM,
    PARAMETERS,
    RATE,
    SIGMA,
    STEPS,
    CraftedCanary,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

CLIP = 0.001
ENTRY = 0.00016
canary = CraftedCanary(
    direction=torch.full((PARAMETERS,), PARAMETERS**-0.5),
    norm=ENTRY * PARAMETERS**0.5,
    clip_norm=CLIP,
)
claim = CLAIM


def clip_in_half_precision(rows: Tensor) -> Tensor:
    norms = rows.half().square().sum(dim=1, keepdim=True).sqrt().float()  # wrong: underflows
    return torch.where(norms > CLIP, rows * CLIP / norms, rows)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip_in_half_precision(rows).sum(dim=0) + noise(random, SIGMA * CLIP)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
