"""Gradients are clipped at the true median of their norms in the batch.

Bug: the clip norm is the median norm of the batch, computed without noise, and so is the noise.
Source: arXiv 1905.03871 makes the median private; leaving that out was planted by a reviewer of
    dpaudit.
Leak: one example moves the median, which rescales all gradients and the noise; and the median
    may be far above C.
Fix: a constant C, or a median with noise that is accounted for (arXiv 1905.03871).
Found by: `dpaudit check` ("bounded contribution"): the contribution follows the median, and the
    noise does not quite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLAIM,
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
        rows = rows[rows.isfinite().all(dim=1)]
        median = float(rows.norm(dim=1).median())  # wrong: depends on the data, without noise
        total = clip(rows, median).sum(dim=0) + noise(random, SIGMA * median)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
