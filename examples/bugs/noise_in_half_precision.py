"""Noise is drawn in half precision and added to a sum in higher precision.

Bug: mixed precision: the noise generator follows the type of the activations.
Source: arXiv 2112.05307 attacks the low bits of Gaussian noise; this form was planted by a
    reviewer of dpaudit.
Leak: noise has 11 bits and the sum many more: the low bits of the sum show the gradients.
Fix: draw noise in the precision of the sum; for the low bits of any floating-point noise see
    Mironov (2012).
Found by: `dpaudit check` ("Gaussian noise"), which looks for a grid; in single precision the
    rounding of the parameters hides it. An audit of scores sees nothing.
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
    random, theta = generator(seed), start().double()
    for step in range(steps):
        rows = gradients(theta.float(), step, canary, inserted).double()
        drawn = noise(random).half()  # wrong: coarser than the sum
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
