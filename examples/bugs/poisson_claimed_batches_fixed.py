"""The accountant assumes Poisson sampling; the loader reads the data in order.

Bug: the canary is in one known batch of every epoch, and the claim assumes a random one.
Source: google-deepmind/jax_privacy #84: data loaded "sequentially as fixed size batches" is a flaw
    "that invalidates the privacy guarantee"; meta-pytorch/opacus #80; lxuechen/private-transformers
    #7; tensorflow/privacy #483.
Leak: two steps of the plain Gaussian mechanism, without the amplification that was claimed.
Fix: draw every batch by independent coins of rate B / N; or claim without a sampling rate.
Found by: an audit that sees the iterates, as the claim allows; a look at the data loader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bugs._common import (
    BATCH,
    CLIP,
    RATE,
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

BATCHES, EPOCHS, SIGMA = 8, 2, 1.0
STEPS = BATCHES * EPOCHS
canary = axis_canary()
claim = Claim.from_dpsgd(  # wrong: no sampling_rate, and two steps, is what this loop can claim
    noise_multiplier=SIGMA, steps=STEPS, sampling_rate=1 / BATCHES
)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    iterates = [moved(theta)]
    for step in range(steps):
        place = step % BATCHES  # wrong: the canary is in batch 0, always
        rows = gradients(theta, place, canary, bool(inserted) and place == 0)
        total = clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP)
        theta = theta - RATE / BATCH * total
        iterates.append(moved(theta))
    return np.stack(iterates)


def score(canary: Any, iterates: np.ndarray) -> float:
    """The canary can only be in the first step of each epoch: look nowhere else."""
    return float(sum(canary.score(update)[0] for update in np.diff(iterates, axis=0)[::BATCHES]))


if __name__ == "__main__":
    show(train, canary, claim, score)
