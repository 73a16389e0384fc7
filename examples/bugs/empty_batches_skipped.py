"""Steps with an empty batch are skipped.

Bug: the loop continues with the next batch where Poisson sampling drew nothing.
Source: meta-pytorch/opacus #522 is about empty batches; skipping them was planted by a reviewer
    of dpaudit.
Leak: whether noise was added shows whether the batch had an example: in a small data set,
    whether the canary was there.
Fix: make the step with noise only.
Found by: an audit that scores how much noise there is, in a few dozen runs; `dpaudit check`
    ("noise differs between runs"), where two seeds skip the same step; `dpaudit check --step`
    for a private step ("noise independent of the data").
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

EXAMPLES, LOT, SIGMA, UPDATES = 40, 0.4, 1.0, 9
canary = axis_canary()
claim = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=UPDATES, sampling_rate=0.5)


def train(canary: Any, inserted: Any, seed: int, steps: int = UPDATES) -> np.ndarray:
    random, theta = generator(seed), start()
    features, classes = housing()
    for _step in range(steps):
        coins = torch.rand(EXAMPLES, generator=random) < LOT / EXAMPLES
        part = coins.nonzero()[:, 0]
        sampled = bool(torch.rand(1, generator=random) < 0.5)
        crafted = crafted_rows(canary, bool(inserted) and sampled)
        drawn = noise(random, SIGMA * CLIP)
        if len(part) + len(crafted) == 0:
            continue  # wrong: the step is skipped, noise and all
        rows = torch.cat([example_gradients(theta, features[part], classes[part]), crafted])
        theta = theta - RATE * (clip(rows).sum(dim=0) + drawn)
    return moved(theta)


def score(canary: Any, final: np.ndarray) -> float:
    """How much noise there is: every step that was not skipped adds some."""
    return float(np.linalg.norm(final))


if __name__ == "__main__":
    show(train, canary, claim, score)
