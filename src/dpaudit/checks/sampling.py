"""Seeds under which noise is drawn: a few for most rules, more for the shape of the noise.

A model with few parameters gives few values of noise per run, so more runs are made until there are
enough. If these look suspicious, a second and larger sample decides. A verdict always comes from
the last sample, so that looking twice costs no false alarms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import centred

if TYPE_CHECKING:
    from dpaudit.checks.measuring import Measurements

SEED_OFFSETS = (
    0, 1, 10, 100, 256, 1000, 1024, 65_536, 100_000, 1_000_000, 1_048_576, 2, 7, 16, 64, 128,
    4096, 10_000, 3, 5,
)  # fmt: skip
"""Chosen so that seeds reduced modulo a power of two or ten repeat themselves."""

FIRST_LOOK = (1 << 14, 24)
"""Values of noise (seeds times parameters) that the first sample has at least, and seeds."""

SECOND_LOOK = (1 << 16, 64)
"""The same for the second sample."""

SUSPICIOUS = 0.01
"""A first sample less likely than this calls for the second one."""

_MOST_SEEDS = 8  # times the least number of seeds
_MOST_LONG = 64  # where a training cannot be shortened to one step


def offsets(runs: int) -> list[int]:
    """What is added to the first seed, for each of so many runs."""
    further = [offset for offset in range(runs + len(SEED_OFFSETS)) if offset not in SEED_OFFSETS]
    return [*SEED_OFFSETS, *further][:runs]


def larger_sample(measured: Measurements, wanted: tuple[int, int]) -> Array:
    """Noise as `Measurements.noise` has it, over more seeds.

    Arguments:
        measured: The measurements; they keep the outputs of further seeds.
        wanted: Number of values, seeds times watched parameters, and number of seeds: at least.
    """
    subject, seeds = measured.subject, measured.seeds
    short = subject.steps_can_vary or measured.steps == 1
    values, least = wanted
    most = _MOST_SEEDS * least if short else _MOST_LONG
    count = min(most, max(least, -(-values // len(measured.watched))))
    if count <= len(seeds):
        return measured.noise()
    further: list[Array] = measured.once("further outputs", list)
    while len(seeds) + len(further) < count:
        seed = max(seeds) + 1 + len(further)
        further.append(subject.output(None, seed, measured.steps)[measured.watched])
    return centred(np.vstack([measured.outputs(), *further[: count - len(seeds)]]))
