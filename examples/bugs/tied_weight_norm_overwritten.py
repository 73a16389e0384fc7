"""The norm of a weight that is used twice is that of its last use.

Bug: the squared norms of all weights are added, but a tied weight keeps one norm, which its second
    use overwrites.
Source: awslabs/fast-differential-privacy, fastDP/supported_layers_grad_samplers.py, lines 109 and
    113: `layer.weight.norm_sample` is assigned in every use of a shared weight; found by reading.
Leak: a gradient of the first use, such as that of a rare token, is not clipped at all.
Fix: the norm of the sum of both uses.
Found by: an audit with a canary in the shared weight in a few runs; `dpaudit check`
    ("bounded contribution").
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
    SIZES,
    STEPS,
    CraftedCanary,
    axis,
    batch,
    crafted_rows,
    example_gradients,
    generator,
    moved,
    noise,
    show,
    start,
)

SHARED = torch.arange(sum(SIZES[:2]), sum(SIZES[:3]))
"""The weight that the input uses like an embedding, and the output once more."""

OTHERS = torch.tensor(sorted({*range(PARAMETERS)} - set(SHARED.tolist())))

canary = CraftedCanary(direction=axis(1000), norm=10.0)
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    for step in range(steps):
        examples, own = example_gradients(theta, *batch(step)), crafted_rows(canary, inserted)
        first = torch.cat([0 * examples, own])  # the canary is a token that only the input sees
        second = torch.cat([examples, 0 * own])
        rows = first + second
        squares = rows[:, OTHERS].square().sum(dim=1)
        for use in (first, second):
            shared = use[:, SHARED].square().sum(dim=1)  # wrong: overwrites that of the first use
        norms = (squares + shared).sqrt()[:, None]
        shorter = rows * (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)
        total = shorter[rows.isfinite().all(dim=1)].sum(dim=0) + noise(random)
        theta = theta - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
