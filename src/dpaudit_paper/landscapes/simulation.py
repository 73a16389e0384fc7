"""Simulation of the process, with and without the canary, as in the paper."""

from __future__ import annotations

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.scores import Scores
from dpaudit_paper.landscapes.process import LandscapeProcess

TILE = 65_536  # positions, noise and drift of a tile stay in the second-level cache
MOST_RUNS = 10**8  # a score takes 8 bytes


def simulate(process: LandscapeProcess, *, runs: int, seed: int = 0) -> Scores:
    """The released number of ``runs`` independent runs, half of them with the canary.

    Runs are played in tiles with a seed each, so that the scores depend on ``seed`` and ``runs``
    only.

    See also:
        `dpaudit_paper.landscapes.exact_privacy` needs no runs; `dpaudit.estimate` for the audit.

    Arguments:
        process: The process to run.
        runs: Number of runs in all, from 2 to 100 million.
        seed: The random seed.

    Example:
        >>> from dpaudit_paper.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=16, steps=25, landscape=Threshold()
        ... )
        >>> scores = simulate(process, runs=2000)
        >>> bool(scores.inserted_scores.mean() > scores.other_scores.mean())
        True
    """
    remedy = "half of the runs contain the canary"
    _validate.integer("runs", runs, at_least=2, at_most=MOST_RUNS, remedy=remedy)
    _validate.integer("seed", seed)
    with_canary = runs // 2
    return Scores.from_samples(
        _positions(process, with_canary, 1, seed), _positions(process, runs - with_canary, 0, seed)
    )


def _positions(process: LandscapeProcess, runs: int, canary: int, seed: int) -> Array:
    tiles = []
    for tile, first in enumerate(range(0, runs, TILE)):
        generator = np.random.default_rng([seed, canary, tile])
        tiles.append(_tile(process, min(TILE, runs - first), canary, generator))
    return np.concatenate(tiles)


def _tile(
    process: LandscapeProcess, runs: int, canary: int, generator: np.random.Generator
) -> Array:
    position = canary + process.noise_multiplier * generator.standard_normal(runs)
    noise = np.empty(runs)
    for step in range(2, process.steps + 1):
        generator.standard_normal(out=noise)
        noise *= process.step_noise
        position = position + process.drift(position, step=step)
        position += noise
        if canary and process.inserts(step):
            position += process.step_ratio
    return position
