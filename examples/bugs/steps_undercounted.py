"""A new accountant is created in every round and reports only the last round.

Bug: training resumes from a checkpoint, but the count of private steps starts again.
Source: meta-pytorch/opacus #688 calls make_private again in every round; PR #429 added the
    accountant's state to checkpoints.
Leak: five rounds are spent where one is claimed.
Fix: keep one accountant for the training, or store its history in the checkpoint.
Found by: an audit in a few hundred runs; `dpaudit account` with the true number of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    RATE,
    SIGMA,
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

ROUNDS, STEPS_OF_A_ROUND = 5, 3
STEPS = ROUNDS * STEPS_OF_A_ROUND
canary = axis_canary()
claim = Claim.from_dpsgd(  # wrong: steps=STEPS
    noise_multiplier=SIGMA, steps=STEPS_OF_A_ROUND
)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
