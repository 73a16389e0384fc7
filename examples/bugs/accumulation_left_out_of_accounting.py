"""Four batches are accumulated for each update, but the accountant uses the rate of one.

Bug: the sampling rate is batch size / N, where it should be the effective batch size / N.
Source: google-deepmind/jax_privacy PR #271, merged as #287: the rate "dropped the
    gradient_accumulation_steps factor".
Leak: the canary takes part in four times as many updates as the claim assumes.
Fix: sampling_rate = BATCH * ACCUMULATED / N.
Found by: an audit in a few dozen runs; `dpaudit account` with the effective batch size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    CLIP,
    RATE,
    axis_canary,
    clip,
    crafted_rows,
    example_gradients,
    generator,
    housing,
    moved,
    noise,
    show,
    start,
)
from dpaudit import Claim

EXAMPLES, BATCH, ACCUMULATED, UPDATES, SIGMA = 64, 8, 4, 9, 1.0
canary = axis_canary()
claim = Claim.from_dpsgd(  # wrong: the rate of an update is BATCH * ACCUMULATED / EXAMPLES
    noise_multiplier=SIGMA, steps=UPDATES, sampling_rate=BATCH / EXAMPLES
)


def train(canary: Any, inserted: Any, seed: int, steps: int = UPDATES) -> np.ndarray:
    random, theta = generator(seed), start()
    features, classes = housing()
    for _update in range(steps):
        total = noise(random, SIGMA * CLIP)
        # Independent coins for the update; the parts only keep the memory small.
        coins = torch.rand(EXAMPLES + 1, generator=random) < BATCH * ACCUMULATED / EXAMPLES
        for part in coins[:EXAMPLES].nonzero()[:, 0].split(BATCH):
            total += clip(example_gradients(theta, features[part], classes[part])).sum(dim=0)
        total += clip(crafted_rows(canary, bool(inserted) and bool(coins[-1]))).sum(dim=0)
        theta = theta - RATE / (BATCH * ACCUMULATED) * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
