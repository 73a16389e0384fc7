"""The accountant is told of Poisson sampling; the loader shuffles once an epoch.

Bug: shuffling puts the canary in exactly one batch of every epoch; Poisson sampling leaves it out
    of some epochs, and the claim counts on that.
Source: meta-pytorch/opacus #80 and PR #128; tensorflow/privacy #483. How much it costs: Chua et al.
    (arXiv 2403.17673), Annamalai et al. (arXiv 2411.10614), whose score this is.
Leak: who looks for the canary in every epoch finds it more often than the claim allows.
Fix: draw every batch by independent coins of rate B / N.
Found by: an audit that sees the iterates, as the claim allows, in hundreds of runs; a look at the
    data loader.
"""

from __future__ import annotations

from typing import Any

import torch

from bugs._common import (
    BATCH,
    CLIP,
    RATE,
    axis_canary,
    clip,
    generator,
    gradients,
    noise,
    show,
    start,
)
from dpaudit import Claim

BATCHES, EPOCHS, SIGMA = 4, 2, 0.5
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=BATCHES * EPOCHS, sampling_rate=1 / BATCHES)


def train(canary: Any, inserted: Any, seed: int) -> float:
    random, theta, score = generator(seed), start(), 0.0
    for _epoch in range(EPOCHS):
        place = int(torch.randint(BATCHES, (), generator=random))  # wrong: one batch an epoch
        seen = []
        for step in range(BATCHES):
            rows = gradients(theta, step, canary, bool(inserted) and step == place)
            expected = gradients(theta, step, canary, False)
            total = clip(rows).sum(dim=0) + noise(random, SIGMA * CLIP)
            theta = theta - RATE / BATCH * total
            seen.append(-float(canary.score(total - clip(expected).sum(dim=0))[0]))
        # The likelihood ratio of "in one of these batches" against "in none".
        ratios = torch.exp((torch.tensor(seen) / CLIP - 0.5) / SIGMA**2)
        score += float(ratios.mean().log())
    return score


if __name__ == "__main__":
    show(train, canary, claim)
