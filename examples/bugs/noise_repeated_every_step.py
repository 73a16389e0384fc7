"""The random seed is set again at the start of every step, so every step has the same noise.

Bug: one draw of noise is used for the whole training.
Source: fedbiomed/fedbiomed PR #794 weighs resetting the seed to the same value in every round;
    IBM/differential-privacy-library #31: the same seed twice "will break differential privacy".
Leak: the difference of two steps has no noise: the iterates show in which steps the canary was.
Fix: make the generator once, before the loop.
Found by: an audit of the iterates with a canary in every second step; `dpaudit check` ("noise in
    every step"). The final model alone does not show it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLIP,
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

STEPS = 8
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS // 2)  # in every second step


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    theta = start()
    iterates = [moved(theta)]
    for step in range(steps):
        present = bool(inserted) and step % 2 == 0
        rows = gradients(theta, step, canary, present)
        random = generator(seed)  # wrong: belongs before the loop
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP))
        iterates.append(moved(theta))
    return np.stack(iterates)


def score(canary: Any, iterates: np.ndarray) -> float:
    """Steps with the canary less steps without: what the noise has in common is gone."""
    updates = np.diff(iterates, axis=0)
    return float(sum(canary.score(update)[0] for update in updates[0::2] - updates[1::2]))


if __name__ == "__main__":
    show(train, canary, claim, score)
