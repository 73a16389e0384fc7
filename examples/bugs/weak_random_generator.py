"""The noise comes from a generator with 65,536 possible states.

Bug: the seed has sixteen bits, and the generator is not a cryptographic one.
Source: fedbiomed/fedbiomed #1443, point 1, and #973 (noise that is "not cryptographically secure");
    google-deepmind/jax_privacy #85; meta-pytorch/opacus PR #223 (secure mode).
Leak: an adversary who knows the code tries all seeds, and subtracts the noise that fits.
Fix: a generator seeded with 128 bits or more from the operating system; a cryptographic one.
Found by: no audit of the output: the noise has the right distribution. `dpaudit check` ("noise
    differs between runs"), which uses seeds that differ in their high bits only; a review of the
    code: search for every seed.
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
    random, theta = generator(seed % 2**16), start()  # wrong: sixteen bits
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
