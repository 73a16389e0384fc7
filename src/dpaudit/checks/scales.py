"""The effect of a contribution of norm C along each coordinate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import scales_by_blocks

if TYPE_CHECKING:
    from dpaudit.checks.measuring import Measurements

Scales = tuple[Array, float]
"""The effect along each coordinate of ``spread``, and its relative error."""

_COARSE = 0.02


def measured_scales(measured: Measurements, steps: int) -> Scales | None:
    """The scales after ``steps`` steps; see `Measurements.scales`."""
    unit, places = measured.unit, measured.spread
    if not measured.repeatable:
        return None
    if unit.kind != "linear":
        if not unit.known or steps != measured.steps:
            return None
        return np.full(len(places), unit.size), unit.error / unit.size
    # Where the dense gradient is clipped by another norm (L1), a much shorter one is not.
    short = 0.1 / float(np.sqrt(len(places)))
    best: Scales | None = None
    for share in (0.1, short, 0.5, 1.0):
        if share == short and (best is None or np.median(best[0]) > 0.9 * unit.size):
            continue
        found = _scale_of(measured, share * measured.subject.clip_norm, steps)
        if found is not None and (best is None or np.median(found[0]) > np.median(best[0])):
            best = found
        if best is not None and share != 0.1:
            return best
        if best is not None and np.median(best[0]) > 0.9 * unit.size:
            return best
    return best


def _scale_of(measured: Measurements, length: float, steps: int) -> Scales | None:
    if steps > 1 or measured.mixes:
        return _total_scale(measured, length, steps)
    places = measured.spread
    gradient = measured.dense(length, places)
    moved = measured.difference(gradient, steps)[places]
    entries = gradient[places] / measured.subject.clip_norm
    return scales_by_blocks(moved, entries, measured.rounding[places])


def _total_scale(measured: Measurements, length: float, steps: int) -> Scales | None:
    """The same for all coordinates, from three drawings of signs."""
    share, places = length / measured.subject.clip_norm, measured.spread
    if measured.mixes and steps == measured.steps:
        places = np.arange(measured.subject.parameters)
    totals = []
    for drawing in range(3):
        random = np.random.default_rng([7, drawing])
        signs = random.choice([-1.0, 1.0], size=measured.subject.parameters)
        moved = measured.difference(signs * np.abs(measured.dense(length, places)), steps)[places]
        totals.append(float(np.linalg.norm(moved)) / share)
    floor = float(np.linalg.norm(measured.rounding[places])) / share
    # If few directions dominate, three drawings do not agree on a total.
    if not np.isfinite(totals).all() or max(totals) > 1.1 * min(totals):
        return None
    if floor > _COARSE * min(totals):
        return None
    return np.full(len(measured.spread), min(totals)), floor / min(totals)
