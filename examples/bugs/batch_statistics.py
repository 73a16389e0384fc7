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

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    PARAMETERS,
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

OUTLIER = torch.tensor([1e4] + 7 * [0.0])
claim = CLAIM


@final
@dataclass(frozen=True)
class ExampleCanary:
    """An example, scored along the way in which it changes the training when there is no noise."""

    features: Tensor
    parameters: int = PARAMETERS
    clip_norm: float = CLIP
    count: int = 1

    @cached_property
    def _change(self) -> np.ndarray:
        change = run(self, True, 0, sigma=0.0) - run(self, False, 0, sigma=0.0)
        return change / np.linalg.norm(change)

    def score(self, final: Any, initial: Any = None) -> np.ndarray:
        return np.array([np.asarray(final) @ self._change])


def run(canary: Any, inserted: Any, seed: int, *, sigma: float) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(STEPS):
        features, classes = batch(step)
        if inserted:
            features = torch.cat([features, canary.features[None]])
            classes = torch.cat([classes, torch.ones(1, dtype=torch.int64)])
        features = (features - features.mean(dim=0)) / features.std(dim=0)  # wrong: of the batch
        rows = example_gradients(theta, features, classes)
        total = clip(rows).sum(dim=0) + noise(random, sigma * CLIP)
        theta = theta - RATE / BATCH * total
    return moved(theta)


def train(canary: Any, inserted: Any, seed: int) -> np.ndarray:
    return run(canary, bool(inserted), seed, sigma=SIGMA)


canary = ExampleCanary(OUTLIER)


if __name__ == "__main__":
    show(train, canary, claim)
