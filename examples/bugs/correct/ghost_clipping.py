"""Ghost clipping: norms first, then one gradient of the reweighted loss.

Right because: the coefficients are min(1, C / norm) with the C that the noise has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bugs._common import (
    BATCH,
    CLAIM,
    CLIP,
    RATE,
    STEPS,
    axis_canary,
    batch,
    crafted_rows,
    example_gradients,
    generator,
    logits,
    moved,
    noise,
    show,
    start,
)

canary = axis_canary()
claim = CLAIM


def clip_coefficients(norms: Tensor) -> Tensor:
    return (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    crafted = crafted_rows(canary, inserted)
    crafted = crafted[crafted.norm(dim=1).isfinite()]  # what is not a number contributes nothing
    for step in range(steps):
        features, classes = batch(step)
        norms = example_gradients(theta, features, classes).norm(dim=1)
        theta.requires_grad_()
        losses = nn.functional.cross_entropy(logits(theta, features), classes, reduction="none")
        # The crafted examples' losses are linear, so that their gradients are the crafted ones.
        crafted_loss = clip_coefficients(crafted.norm(dim=1)) @ (crafted @ theta)
        loss = clip_coefficients(norms) @ losses + crafted_loss
        total = torch.autograd.grad(loss, theta)[0] + noise(random)
        theta = theta.detach() - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
