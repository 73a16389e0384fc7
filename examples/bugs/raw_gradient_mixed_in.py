"""The raw mean gradient is added to the private one.

Bug: backward() fills .grad with the mean gradient before the private sum is added to it.
Source: dayu11/Differentially-Private-Deep-Learning #7: "you mix average gradient without any DP
    operation and clipped sample gradient".
Leak: the raw part is neither clipped nor covered by noise of its own: with a canary of norm 10 C
    an example contributes 11 C.
Fix: clear .grad after backward(), then add the private sum.
Found by: an audit in a few runs; `dpaudit check` ("bounded contribution").
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
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        accumulated = rows.sum(dim=0) / BATCH  # what backward() leaves in .grad
        accumulated += (clip(rows).sum(dim=0) + noise(random)) / BATCH  # wrong: += instead of =
        theta = theta - RATE * accumulated
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
