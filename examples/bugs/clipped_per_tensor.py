"""Every parameter tensor is clipped to C by itself, and the claim is for a global norm of C.

Bug: an example contributes up to C in each of L tensors: sqrt(L) C in all.
Source: fedbiomed/fedbiomed #1443, point 4: "the clip is not applied as a global norm of gradient
    but per-parameter".
Leak: six tensors: a sensitivity 2.45 times larger than the noise was made for.
Fix: clip the norm over all tensors; or clip each to C / sqrt(L); or make the noise for sqrt(L) C.
Found by: an audit with a canary spread over all tensors (a canary along one axis sees nothing);
    `dpaudit check` ("bounded contribution").
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
    SIZES,
    STEPS,
    CraftedCanary,
    axis,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

PLACES = [sum(SIZES[:tensor]) + 1 for tensor in range(len(SIZES))]
canary = CraftedCanary(
    direction=sum(axis(place) for place in PLACES) / len(PLACES) ** 0.5, norm=100 * CLIP
)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        parts = [clip(part).sum(dim=0) for part in rows.split(SIZES, dim=1)]  # wrong: one by one
        theta = theta - RATE / BATCH * (torch.cat(parts) + noise(random))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
