"""The noise comes from a generator with a fixed seed.

Bug: a training made reproducible for everybody is reproducible for the adversary.
Source: IBM/differential-privacy-library #31 (seeds wanted for models, and the danger);
    fedbiomed/fedbiomed #973 and #1443, point 1 (is the noise's seed secure?).
Leak: the noise is a constant: subtract it, and there is none.
Fix: seed from the operating system's entropy; here, from the run.
Found by: an audit in a few runs; `dpaudit check` ("noise in every parameter").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
    STEPS,
    axis_canary,
    clip,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    order, theta = generator(seed), start()
    random = generator(42)  # wrong: the same noise in every run
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        rows = rows[torch.randperm(len(rows), generator=order)]  # the seed shuffles, nothing else
        total = clip(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
