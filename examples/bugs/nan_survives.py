"""A gradient that is not a number passes the clipping.

Bug: a comparison with NaN is false, so min(1, C / norm) leaves the gradient as it is.
Source: google/differential-privacy PR #405: NaN passes a clamp "and propagates into DP results";
    OpenMined/PySyft #6956; the tests of ObliviousAI/dp-recorder.
Leak: one example turns the model into NaN, and nothing else could have.
Fix: an example whose gradient is not finite contributes zero.
Found by: an audit with a NaN canary; `dpaudit check` ("infinite and NaN gradients"), as a
    warning: whether a gradient can be NaN depends on the loss, which the check does not see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    RATE,
    STEPS,
    CraftedCanary,
    axis,
    generator,
    gradients,
    moved,
    noise,
    show,
    start,
)

canary = CraftedCanary(direction=axis(500), norm=float("nan"))
claim = CLAIM


def clip_numbers_only(rows: Tensor) -> Tensor:
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > CLIP, rows * CLIP / norms, rows)  # wrong: NaN > CLIP is false


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip_numbers_only(rows).sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


def score(canary: Any, returned: np.ndarray) -> float:
    """Is the model still made of numbers?"""
    return float(np.isnan(returned).any())


if __name__ == "__main__":
    show(train, canary, claim, score)
