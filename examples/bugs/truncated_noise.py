"""Noise is truncated at two and a half standard deviations.

Bug: large draws are drawn again, "for stability".
Source: planted by a reviewer of dpaudit; no public report.
Leak: as for uniform noise: an update that noise cannot reach proves that the example took part.
Fix: do not truncate.
Found by: `dpaudit check` ("Gaussian noise"). An audit of the final parameters sees nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    PARAMETERS,
    RATE,
    SIGMA,
    STEPS,
    axis_canary,
    clip,
    generator,
    gradients,
    moved,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        drawn = torch.nn.init.trunc_normal_(  # wrong: bounded
            torch.empty(PARAMETERS), std=1.06, a=-2.5, b=2.5, generator=random
        )
        theta = theta - RATE / BATCH * (clip(rows).sum(dim=0) + SIGMA * CLIP * drawn)
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
