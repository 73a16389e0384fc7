"""Features are standardised with the mean and deviation of their batch.

Bug: through the batch's statistics an example changes every other example's gradient, and clipping
    bounds only its own.
Source: meta-pytorch/opacus #319: batch normalisation "is not compatible with DP"; APPFL/APPFL #349,
    point 2.
Leak: an outlier squeezes a feature of all others to one value; all their gradients turn.
Fix: statistics that do not depend on the data (group normalisation), or public ones.
Found by: an audit that inserts an example, not a gradient; Opacus' ModuleValidator; `dpaudit check`
    cannot see it, since it inserts gradients.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    RATE,
    SIGMA,
    STEPS,
    batch,
    clip,
    example_gradients,
    generator,
    moved,
    noise,
    show,
    start,
)

canary = torch.tensor([1e4] + 7 * [0.0])  # an example: an outlier in its first feature
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, sigma: float = SIGMA) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(STEPS):
        features, classes = batch(step)
        if inserted:
            features = torch.cat([features, canary[None]])
            classes = torch.cat([classes, torch.ones(1, dtype=torch.int64)])
        features = (features - features.mean(dim=0)) / features.std(dim=0)  # wrong: of the batch
        rows = example_gradients(theta, features, classes)
        total = clip(rows).sum(dim=0) + noise(random, sigma * CLIP)
        theta = theta - RATE / BATCH * total
    return moved(theta)


@cache
def change() -> np.ndarray:
    """What the example changes when there is no noise: the adversary can simulate that."""
    return train(canary, True, 0, sigma=0.0) - train(canary, False, 0, sigma=0.0)


def score(canary: Any, returned: np.ndarray) -> float:
    """How far training went the way that the example pushes it."""
    return float(returned @ change())


if __name__ == "__main__":
    show(train, canary, claim, score)
