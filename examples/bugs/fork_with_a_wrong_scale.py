"""A fork of a DP optimizer scales its noise by sigma, not by sigma C.

Bug: the fork's add_noise leaves out max_grad_norm, which changes nothing while C is 1.
Source: the scale that meta-pytorch/opacus #202 asks about; the fork was planted by a reviewer of
    dpaudit.
Leak: noise is C times too small: twice at C = 2.
Fix: std = noise_multiplier * max_grad_norm.
Found by: an audit in about fifty runs; `dpaudit check` ("noise size").
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn, optim

from bugs._common import BATCH, CLAIM, RATE, SIGMA, STEPS, axis_canary, generator, show
from bugs._opacus import add_gradients, loader, make_private, network, parameters_moved

CLIP_NORM = 2.0
canary = axis_canary(clip_norm=CLIP_NORM)
claim = CLAIM


class ForkedOptimizer(DPOptimizer):
    """Opacus' optimizer with a method of its own."""

    def add_noise(self) -> None:
        for parameter in self.params:
            shape = parameter.summed_grad.shape
            deviation = self.noise_multiplier  # wrong: times self.max_grad_norm
            drawn = torch.normal(0.0, deviation, shape, generator=self.generator)
            parameter.grad = (parameter.summed_grad + drawn).view_as(parameter)


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    plain = network()
    model, optimizer, batches = make_private(
        plain, optim.SGD(plain.parameters(), lr=RATE), loader(steps), seed=seed
    )
    optimizer = ForkedOptimizer(
        optimizer.original_optimizer,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=BATCH,
        generator=generator(seed),
    )
    for features, classes in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), classes).backward()
        add_gradients(model, canary, inserted)
        optimizer.step()
    return parameters_moved(model)


if __name__ == "__main__":
    show(train, canary, claim)
