"""A small training with noise of any size, and the receipt of its audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpaudit
from dpaudit import Claim, GradientCanary
from dpaudit.receipts import Receipt, receipt_of
from dpaudit.scores import Store

CANARY = GradientCanary.draw(6, clip_norm=1.0)


def noisy(noise: float, fails: int = 0) -> Callable[..., Any]:
    """A training of one step with this noise, which fails for some of its seeds."""

    def train(canary: GradientCanary, inserted: bool, seed: int) -> Any:
        if fails and seed % fails == 0:
            raise ValueError("this seed fails")
        return -(canary.clipped_sum(inserted) + np.random.default_rng(seed).normal(0, noise, 6))

    return train


def play(store: Path, train: Callable[..., Any], **settings: Any) -> Receipt:
    """The receipt of an audit."""
    made = {"include_scores": settings.pop("include_scores", True)}
    settings = {"canary": CANARY, "claim": Claim.from_mu(1.0), "runs": 120} | settings
    result = dpaudit.audit(train, store=store, **settings)
    with Store.open(store) as opened:
        return receipt_of(opened.audit(result.audit), **made)
