"""Gradients are not clipped.

Bug: noise is added, but nothing bounds what one example contributes.
Source: meta-pytorch/opacus #177 asks for a PrivacyEngine "without gradient clipping (i.e., only add
    noise)"; tensorflow/privacy #136.
Leak: an example with a gradient ten times the clip norm contributes ten times as much.
Fix: clip(rows).sum(dim=0).
Found by: an audit in a few runs, if its canary is longer than the clip norm; `dpaudit check`
    ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
    STEPS,
    axis_canary,
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
        total = rows.sum(dim=0) + noise(random)  # wrong: rows are as long as they like
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
