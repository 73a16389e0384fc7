"""The noise is 20 % smaller than claimed.

Bug: the noise multiplier was calibrated for another training, and used in this one.
Source: google-deepmind/jax_privacy #234: two ways to count give noise multipliers 7.69 and 3.92 for
    one training.
Leak: every error rate is a little lower than the claim allows.
Fix: the noise multiplier that the accountant uses.
Found by: an audit in several hundred runs; in one run with ten thousand canaries; `dpaudit check`
    ("noise size").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLIP,
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
from dpaudit import Claim

SIGMA = 1.8
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS)  # epsilon 8.0 at delta 1e-5


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random, 0.8 * SIGMA * CLIP)  # wrong: 0.8
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim, runs=2000)
