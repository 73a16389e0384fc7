"""The accountant assumes Poisson sampling; the loader shuffles once per epoch.

Bug: shuffling puts the canary in exactly one batch of every epoch; Poisson sampling leaves it out
    of some epochs, and the claim counts on that.
Source: meta-pytorch/opacus #80 and PR #128; tensorflow/privacy #483. How much it costs: Chua et al.
    (arXiv 2403.17673), Annamalai et al. (arXiv 2411.10614), whose score this is.
Leak: a search for the canary in every epoch finds it more often than the claim allows.
Fix: draw every batch by independent coins of rate B / N.
Found by: an audit that sees the iterates, as the claim allows, in a thousand runs or two (the leak
    exceeds the claim by so little that 300 runs do not show it); a look at the data loader.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch

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

BATCHES, EPOCHS, SIGMA = 4, 2, 0.5
STEPS = BATCHES * EPOCHS
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS, sampling_rate=1 / BATCHES)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    iterates = [moved(theta)]
    for step in range(steps):
        place = step % BATCHES
        if place == 0:
            chosen = int(torch.randint(BATCHES, (), generator=random))  # wrong: one an epoch
        rows = gradients(theta, place, canary, bool(inserted) and place == chosen)
        total = clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP)
        theta = theta - RATE / BATCH * total
        iterates.append(moved(theta))
    return np.stack(iterates)


def score(canary: Any, iterates: np.ndarray) -> float:
    """The likelihood ratio of "in one batch of each epoch" against "in none"."""
    shown = [
        canary.score(after - before)[0] * BATCH / RATE - known_part(canary, before, step % BATCHES)
        for step, (before, after) in enumerate(pairwise(iterates))
    ]
    ratios = np.exp((np.array(shown).reshape(EPOCHS, BATCHES) / CLIP - 0.5) / SIGMA**2)
    return float(np.log(ratios.mean(axis=1)).sum())


def known_part(canary: Any, iterate: np.ndarray, step: int) -> float:
    """What the batch itself does along the canary's axis: the adversary knows data and iterate."""
    theta = start() + torch.as_tensor(iterate, dtype=torch.float32)
    return -float(canary.score(clip(gradients(theta, step, canary, False)).sum(dim=0))[0])


if __name__ == "__main__":
    show(train, canary, claim, score)
