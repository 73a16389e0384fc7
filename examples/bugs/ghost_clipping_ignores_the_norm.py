"""Ghost clipping clips to its default of 1, whatever clip norm it was given.

Bug: the clip norm reaches the noise, but not the clipping.
Source: meta-pytorch/opacus PR #664: "privacy engine erroneously wasn't using the max_grad_norm
    argument".
Leak: with C = 0.1, an example contributes up to 1, ten times what the noise was made for.
Fix: clip_coefficients(norms, clip_norm).
Found by: an audit with a canary longer than C; `dpaudit check` ("bounded contribution").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bugs._common import (
    BATCH,
    CLAIM,
    RATE,
    SIGMA,
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

CLIP = 0.1
canary = axis_canary(clip_norm=CLIP)
claim = CLAIM


def clip_coefficients(norms: Tensor, clip_norm: float = 1.0) -> Tensor:
    return (clip_norm / norms.clamp(min=1e-12)).clamp(max=1.0)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    random, theta = generator(seed), start()
    crafted = crafted_rows(canary, inserted)
    for step in range(steps):
        features, classes = batch(step)
        norms = example_gradients(theta, features, classes).norm(dim=1)
        coefficients = clip_coefficients(norms)  # wrong: clip_norm=CLIP is not handed on
        crafted_coefficients = clip_coefficients(crafted.norm(dim=1))  # wrong, for the same reason
        # The second pass of ghost clipping: one gradient of the reweighted loss. The crafted
        # examples' losses are linear, so that their gradients are the crafted ones.
        theta.requires_grad_()
        losses = nn.functional.cross_entropy(logits(theta, features), classes, reduction="none")
        loss = coefficients @ losses + crafted_coefficients @ (crafted @ theta)
        total = torch.autograd.grad(loss, theta)[0] + noise(random, SIGMA * CLIP)
        theta = theta.detach() - RATE / BATCH * total
    return moved(theta)


if __name__ == "__main__":
    show(train, canary, claim)
