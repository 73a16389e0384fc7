"""The preset ``crafted-network``: data and network on which hiding models hardly helps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpaudit.data import Examples
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, FixedBatches, Insertion, hinge
from dpaudit.presets import Preset


def _crafted_training(
    *, insertion: Insertion | None, batches: FixedBatches, **settings: Any
) -> DPSGD:
    """The training: the batch after an insertion reads, the others are wells."""
    from dpaudit_paper.crafted_network import FEATURES, CraftedDesign, CraftedNetwork

    insertion = Insertion(period=5) if insertion is None else insertion
    period = insertion.period
    if period < 2:
        raise InvalidInput(
            f"period must be at least 2 for crafted-network, got {period}; use --period 5"
        )
    size = batches.batch_size
    design = CraftedDesign.fitted(
        batch_size=size,
        learning_rate=settings["learning_rate"],
        clip_norm=settings["clip_norm"],
        noise_multiplier=settings["noise_multiplier"],
    )
    features = np.zeros((period * size, FEATURES))
    targets = np.zeros(period * size, dtype=np.int64)
    random = np.random.default_rng(batches.seed)
    for step in range(period):
        # The batches are shuffled: put each kind where its batch will be.
        places = batches.indices(step, len(targets))
        reads = insertion.at(step - 1 + period)
        batch = design.reading if reads else design.wells
        features[places], targets[places] = batch(size, random)
    return DPSGD(
        build_model=functools.partial(CraftedNetwork, design),
        data=Examples(features=features, targets=targets, classes=2, name="crafted"),
        batches=batches,
        **settings,
    )


CRAFTED_NETWORK = Preset(
    name="crafted-network",
    summary="ReLU network on crafted data",
    needs_folder=False,
    make=_crafted_training,
    learning_rate=0.1,
    loss=hinge,
    adversary="rare-feature",
)
