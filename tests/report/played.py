"""Audits as a store keeps them, with scores that were drawn instead of trained for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpaudit.scores import AuditRecord, ScoreBlock, Scores, Store

VERSIONS = {"dpaudit": "0.1.0", "python": "3.11", "numpy": "2", "torch": "2", "device": "cpu"}


def settings(
    *,
    runs: int = 400,
    canaries: int = 1,
    noise_multiplier: float = 4.0,
    steps: int = 250,
    period: int = 1,
    horizons: Sequence[int] = (),
    seed: int = 3,
    preset: str = "housing",
) -> dict[str, Any]:
    """The configuration that ``dpaudit audit`` would have stored."""
    return {
        "version": 4,
        "mechanism": {
            "kind": "mechanism",
            "name": preset,
            "loss": "dpaudit.mechanisms.losses.cross_entropy",
            "batches": {"class": "FixedBatches", "batch_size": 400, "seed": seed},
            "initialisation": {"class": "FixedInitialisation", "seed": seed},
            "sampling_rate": None,
            "steps": steps,
            "learning_rate": 0.1,
            "clip_norm": 1.0,
            "noise_multiplier": noise_multiplier,
        },
        "adversary": {
            "name": "simulated-dimension",
            "threat_model": "hidden state",
            "settings": {
                "class": "SimulatedDimension",
                "simulation": "noiseless",
                "ranking": "per-step",
                "simulations": 4,
            },
        },
        "insertion": {"period": period, "offset": 0},
        "runs": runs,
        "canaries": canaries,
        "coin": "half" if canaries == 1 else "fair",
        "seed": seed,
        "horizons": [*horizons, steps],
        "speed": {"precision": "float32", "tile_size": max(runs // 4, 1)},
    }


def normal_scores(mu: float, *, runs: int = 400, canaries: int = 1, seed: int = 0) -> Scores:
    """Normal scores mu apart; half of the runs have the canary, or a fair coin decides for each."""
    random = np.random.default_rng(seed)
    size = runs * canaries
    half = random.permutation(np.arange(size) % 2 == 0)
    inserted = half if canaries == 1 else random.random(size) < 0.5
    return Scores(
        score=random.normal(size=size) + mu * inserted,
        inserted=inserted,
        run=np.repeat(np.arange(runs), canaries),
    )


def store_audit(
    store: Store,
    scores: Scores | None,
    configuration: Mapping[str, Any],
    *,
    name: str | None = None,
    finished: bool = True,
) -> AuditRecord:
    """Put an audit into a store, the same scores at every horizon."""
    record = store.begin(name, configuration, VERSIONS)
    if scores is not None:
        size = configuration["speed"]["tile_size"]
        for tile in np.unique(scores.run // size):
            rows = scores.run // size == tile
            parts = [
                (scores.run[rows], scores.canary[rows], scores.inserted[rows], scores.score[rows])
                for _ in configuration["horizons"]
            ]
            run, canary, inserted, score = (
                np.concatenate(column) for column in zip(*parts, strict=True)
            )
            horizon = np.repeat(configuration["horizons"], rows.sum())
            block = ScoreBlock(
                run=run, canary=canary, horizon=horizon, inserted=inserted, score=score
            )
            record.add_tile(int(tile), block)
    if finished:
        record.finish({"seconds": 12.5, "question": {"confirm": False}})
    return record
