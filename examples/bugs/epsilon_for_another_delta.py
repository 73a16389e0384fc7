"""The epsilon that is printed belongs to another delta than the one beside it.

Bug: the accountant's default delta is used for the number, the intended one for the text.
Source: of the kind of meta-pytorch/opacus #604 and #585 (numbers from the accountant that cannot be
    right), and google-deepmind/jax_privacy #288 (two parts of one program count differently).
Leak: none: the training keeps the claim of its settings; only the printed epsilon is wrong.
Fix: compute and print with one delta.
Found by: no audit of the output with this many runs: epsilon is 4.38 at delta 1e-5, and what is
    printed is 2.32, the epsilon at delta 1e-2. `dpaudit account` with the training's parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
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
from dpaudit import Claim, upper_bound

PRINTED_DELTA, COMPUTED_DELTA = 1e-5, 1e-2  # wrong: two deltas
canary = axis_canary()
printed_epsilon = upper_bound(
    noise_multiplier=SIGMA, steps=STEPS, delta=COMPUTED_DELTA, accountant="gaussian"
).epsilon
claim = Claim.from_points([(printed_epsilon, PRINTED_DELTA)])


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
