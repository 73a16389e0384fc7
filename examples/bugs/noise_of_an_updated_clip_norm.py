"""The clip norm adapts between clipping and noise, so that the noise has the next step's scale.

Bug: gradients are clipped to C, C is updated by a noisy count, and the noise is scaled with the
    new C. Where most gradients are clipped, the new one is smaller.
Source: adap/flower, serverapp/strategy/dp_adaptive_clipping.py, version 1.41: `_geometric_update`
    is called before `_add_noise_to_aggregated_arrays`; it also counts the clipped updates instead
    of the others, so that C shrinks for ever. Found by reading; examples/flower_strategies.py.
Leak: noise is smaller than claimed by exp(-0.75) in every step in which all gradients are clipped.
Fix: scale the noise with the clip norm that the gradients were clipped to.
Found by: an audit in about a thousand runs; `dpaudit check` ("bounded contribution", "noise size",
    "Gaussian noise").
"""

from __future__ import annotations

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

STEPS, SIGMA = 2, 1.0  # few: the clip norm shrinks so fast that later steps hardly count
COUNT_DEVIATION, PACE, TARGET = BATCH / 8, 1.5, 0.5

canary = axis_canary()
claim = Claim.from_dpsgd(
    # Of both releases, the gradient and the count (Andrew et al. 2021).
    noise_multiplier=(SIGMA**-2 + (2 * COUNT_DEVIATION) ** -2) ** -0.5,
    steps=STEPS,
)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta, norm = generator(seed), start(), CLIP
    for step in range(steps):
        rows = gradients(theta, step, canary, inserted)
        total = clip(rows, norm).sum(dim=0)
        norm = adapted(norm, rows, random)
        theta = theta - RATE / BATCH * (total + noise(random, SIGMA * norm))  # wrong: the new norm
    return moved(theta)


def adapted(norm: float, rows: torch.Tensor, random: torch.Generator) -> float:
    """The clip norm of the next step, by a noisy count of clipped gradients."""
    clipped = (rows.norm(dim=1) > norm).sum() + COUNT_DEVIATION * torch.randn(1, generator=random)
    return norm * float(torch.exp(-PACE * (clipped / BATCH - TARGET)))


if __name__ == "__main__":
    show(train, canary, claim)
