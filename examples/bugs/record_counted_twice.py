"""A record is in the data set twice.

Bug: the training set was put together from two sources that overlap.
Source: arXiv 2107.06499 finds many duplicates in training sets; planted by a reviewer of
    dpaudit.
Leak: the record contributes 2 C to every step, and the noise was made for C.
Fix: remove duplicates, or claim for groups of two.
Found by: an audit in about fifty runs; `dpaudit check` ("noise size").
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
    clip,
    crafted_rows,
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
        rows = torch.cat([rows, crafted_rows(canary, inserted)])  # wrong: the same record again
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + noise(random))
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
