"""Trainings that are not trained: scores drawn from the two normals that theory expects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpaudit.curves import gaussian_epsilon
from dpaudit.data import Examples
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.scores import Scores
from dpaudit_paper import trainings as trainings_module
from dpaudit_paper.trainings import DELTA, Trainings

SIGMA = 4
EXAMPLES = 256


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a figure reads of an audit's result."""

    horizons: tuple[Any, ...]
    configuration: dict[str, Any]
    runs: int
    canaries: int
    seconds: float = 0.1
    device: str = "cpu"
    resumed: int = 0

    @property
    def scores(self) -> Scores:
        return self.horizons[-1].scores


def play(trainings: Trainings, setting: Any) -> Played:
    """In place of `Trainings.play`: at every horizon the mu of an undisturbed trace."""
    random = np.random.default_rng(trainings.seed)
    canaries = min(trainings.canaries, 240)
    runs = min(trainings.runs, 240)

    def at(horizon: int) -> Any:
        insertions = horizon // trainings.period
        mu = insertions / (SIGMA * math.sqrt(horizon))
        # Half and half, like the coins; a run has one canary, or one run has all.
        inserted = np.arange(runs * canaries) % 2 == 0
        return SimpleNamespace(
            horizon=horizon,
            scores=Scores(
                score=random.normal(size=runs * canaries) + mu * inserted,
                inserted=inserted,
                run=np.repeat(np.arange(runs), canaries),
            ),
            least_upper=SimpleNamespace(
                epsilon=gaussian_epsilon(DELTA, math.sqrt(insertions) / SIGMA)
            ),
        )

    result = Played(
        horizons=tuple(at(horizon) for horizon in trainings.horizons),
        configuration={
            "mechanism": {"data": {"name": "drawn", "examples": EXAMPLES}},
            "seed": trainings.seed,
            "speed": {"precision": "float32"},
        },
        runs=runs,
        canaries=canaries,
    )
    setting.ledger.add(trainings.name_at("float32"), result)  # type: ignore[arg-type]
    return result


@pytest.fixture
def not_trained(monkeypatch):
    """Trainings give drawn scores, and CIFAR-10 is a handful of drawn images."""
    random = np.random.default_rng(0)
    images = Examples(
        features=random.normal(size=(EXAMPLES, 3, 32, 32)),
        targets=random.integers(10, size=EXAMPLES),
        classes=10,
    )

    def base(preset_name, data_dir, examples):
        from dpaudit.mechanisms.batches import FixedBatches
        from dpaudit.mechanisms.dpsgd import DPSGD
        from dpaudit.models import convnet

        return DPSGD(
            build_model=convnet,
            loss=cross_entropy,
            data=images,
            batches=FixedBatches(batch_size=128),
            steps=250,
            learning_rate=0.01,
            clip_norm=1.0,
            noise_multiplier=4.0,
        )

    monkeypatch.setattr(trainings_module, "_base", base)
    monkeypatch.setattr(Trainings, "play", play)
