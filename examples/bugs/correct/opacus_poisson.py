"""Opacus with its Poisson loader; the canary is inserted without editing the loop.

Right because: the accountant uses the sampling rate of the loader, and
    `insert_canary` gives the canary coins of the same rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn, optim

from bugs._common import RATE, axis_canary, show
from bugs._opacus import loader, make_private, network, parameters_moved
from dpaudit import Claim
from dpaudit.integrations.opacus import insert_canary

STEPS_OF_AN_EPOCH, EPOCHS, SIGMA = 4, 2, 1.0
canary = axis_canary()
claim = Claim.from_dpsgd(
    noise_multiplier=SIGMA, steps=STEPS_OF_AN_EPOCH * EPOCHS, sampling_rate=1 / STEPS_OF_AN_EPOCH
)


def fit(model: nn.Module, optimizer: Any, batches: Any) -> None:
    for _epoch in range(EPOCHS):
        for features, classes in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), classes).backward()
            optimizer.step()


def train(canary: Any, inserted: Any, seed: int) -> np.ndarray:
    torch.manual_seed(seed)  # the loader draws from torch's own generator
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=RATE)
    model, optimizer, batches = make_private(
        model,
        optimizer,
        loader(STEPS_OF_AN_EPOCH),
        seed=seed,
        noise_multiplier=SIGMA,
        poisson_sampling=True,
    )
    with insert_canary(optimizer, canary, inserted, seed=seed):
        fit(model, optimizer, batches)
    return parameters_moved(model)


if __name__ == "__main__":
    show(train, canary, claim)
