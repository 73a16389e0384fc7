"""Four views of each example are clipped one by one.

Bug: data augmentation, or a loss that calls the network several times, gives an example several
    rows, and every row gets C.
Source: meta-pytorch/opacus #461: a network evaluated N times "is not being accounted for"; #455 and
    De et al. (arXiv 2204.13650) average the views of an example first.
Leak: an example contributes 4 C.
Fix: average the views of each example, then clip.
Found by: an audit in a few runs; `dpaudit check` ("noise size": it sees the ratio of noise and
    contribution, whichever is wrong).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
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

VIEWS = 4
canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        features, classes = batch(step)
        total = noise(random)
        for _view in range(VIEWS):
            view = features + 0.01 * torch.randn(features.shape, generator=random)
            rows = torch.cat(
                [example_gradients(theta, view, classes), crafted_rows(canary, inserted)]
            )
            total = total + clip(rows).sum(dim=0)  # wrong: clip the mean of an example's views
        theta = theta - RATE / (BATCH * VIEWS) * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
