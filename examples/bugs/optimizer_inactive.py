"""The loop does not use the private optimizer.

Bug: make_private returns a new optimizer; the loop steps the one it had before.
Source: tensorflow/privacy #72: with a new version of the framework the private optimizer's gradient
    code was not called any more; #134 is the assertion that was added against it.
Leak: plain SGD: no clipping and no noise, while the accountant counts private steps.
Fix: optimizer = private_optimizer.
Found by: an audit in a few runs; `dpaudit check` ("bounded contribution").
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
    private_model, private_optimizer, batches = make_private(
        model, optimizer, loader(steps), seed=seed
    )
    for features, classes in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private_model(features), classes).backward()
        add_gradients(model, canary, inserted)
        optimizer.step()  # wrong: private_optimizer.step()
        private_optimizer.zero_grad()
    return parameters_moved(model)


if __name__ == "__main__":
    show(train, canary, claim)
