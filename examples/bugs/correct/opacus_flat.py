"""Opacus as its manual says, with known batches.

Right because: the loop steps the optimizer that make_private returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn, optim

from bugs._common import CLAIM, RATE, STEPS, axis_canary, show
from bugs._opacus import add_gradients, loader, make_private, network, parameters_moved

canary = axis_canary()
claim = CLAIM


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, batches = make_private(model, optimizer, loader(steps), seed=seed)
    for features, classes in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), classes).backward()
        add_gradients(model, canary, inserted)
        optimizer.step()
    return parameters_moved(model)


if __name__ == "__main__":
    show(train, canary, claim)
