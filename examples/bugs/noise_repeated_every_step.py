"""The random seed is set again at the start of every step, so every step has the same noise.

Bug: one draw of noise is used for the whole training.
Source: fedbiomed/fedbiomed PR #794 weighs resetting the seed to the same value in every round;
    IBM/differential-privacy-library #31: the same seed twice "will break differential privacy".
Leak: the difference of two steps has no noise. Who sees the iterates sees the canary come and go.
Fix: make the generator once, before the loop.
Found by: an audit of the iterates with a canary in every second step; `dpaudit check` (the noise is
    not independent across steps). The final model alone does not show it.
"""

from __future__ import annotations

from typing import Any

from bugs._common import (
    BATCH,
    CLIP,
    RATE,
    SIGMA,
    axis_canary,
    clip,
    generator,
    gradients,
    noise,
    show,
    start,
)
from dpaudit import Claim

STEPS = 8
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS // 2)  # in every second step


def train(canary: Any, inserted: Any, seed: int) -> float:
    theta, score = start(), 0.0
    for step in range(STEPS):
        present = bool(inserted) and step % 2 == 0
        rows = gradients(theta, step, canary, present)
        random = generator(seed)  # wrong: belongs before the loop
        update = -RATE / BATCH * (clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP))
        theta = theta + update
        # Steps with the canary less steps without: what the noise has in common is gone.
        score += float(canary.score(update)[0]) * (1 if step % 2 == 0 else -1)
    return score


if __name__ == "__main__":
    show(train, canary, claim)
