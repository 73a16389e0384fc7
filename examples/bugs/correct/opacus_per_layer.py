"""Opacus with per-layer clipping, claimed rightly.

Right because: an example contributes at most sqrt(sum of C_l^2) over the tensors, and that is what
    Opacus scales its noise to (meta-pytorch/opacus #202 asks why). The canary has a part in every
    tensor, as in `bugs.clipped_per_tensor`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn, optim

from bugs._common import CLAIM, CLIP, RATE, SIZES, STEPS, CraftedCanary, axis, show
from bugs._opacus import add_gradients, loader, make_private, network, parameters_moved

LIMITS = [0.3, 0.5, 0.7, 0.2, 0.4, 0.1]
PLACES = [sum(SIZES[:tensor]) + 1 for tensor in range(len(SIZES))]
WHOLE = sum(limit**2 for limit in LIMITS) ** 0.5
canary = CraftedCanary(
    direction=sum(limit * axis(place) for limit, place in zip(LIMITS, PLACES, strict=True)) / WHOLE,
    norm=100 * CLIP,
    clip_norm=WHOLE,
)
claim = CLAIM
PER_LAYER: dict[str, Any] = {"clipping": "per_layer", "max_grad_norm": LIMITS}


def train(canary: Any, inserted: Any, seed: int, steps: int = STEPS) -> np.ndarray:
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, batches = make_private(
        model, optimizer, loader(steps), seed=seed, **PER_LAYER
    )
    for features, classes in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), classes).backward()
        add_gradients(model, canary, inserted)
        optimizer.step()
    return parameters_moved(model)


if __name__ == "__main__":
    show(train, canary, claim)
