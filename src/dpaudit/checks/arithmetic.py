"""Small computations on flat vectors."""

from __future__ import annotations

import numpy as np

from dpaudit._arrays import Array


def scales_by_blocks(moved: Array, entries: Array, rounding: Array) -> tuple[Array, float] | None:
    """Fit ``moved = scale * entries`` within blocks that are as short as rounding allows.

    Returns the scale of each coordinate, zero where it did not move, and a typical relative error;
    `None` if even long blocks are too imprecise.
    """
    if not np.all(np.isfinite(moved)):
        return None
    for width in (1, 8, 64):
        found = _in_blocks(moved, entries, rounding, width)
        if found is not None:
            return found
    return None


def _in_blocks(
    moved: Array, entries: Array, rounding: Array, width: int
) -> tuple[Array, float] | None:
    block = np.arange(len(moved)) // width
    weight = np.bincount(block, entries**2)
    scale = np.abs(np.bincount(block, moved * entries) / weight)
    error = np.sqrt(np.bincount(block, (rounding * entries) ** 2)) / weight
    trained = scale > 3 * error
    if not trained.any():
        return None
    relative = float(np.median(error[trained] / scale[trained]))
    if relative > 0.02:
        return None
    return np.where(trained, scale, 0.0)[block], relative


def spacing(values: Array) -> float:
    """The typical distance between neighbouring numbers, from the last bit that is set.

    A training that returns how far the parameters moved rounded the parameters, not the distance.
    """
    mantissa, exponent = np.frexp(values[values != 0][: 1 << 16])
    if not len(mantissa):
        return 0.0
    digits = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    last = (digits & -digits).astype(np.float64)
    return float(np.median(np.ldexp(last, exponent - 53)))


def centred(rows: Array) -> Array:
    """The rows minus their mean: outputs of several seeds minus what they share."""
    return np.asarray(rows - rows.mean(axis=0))


def direction(gradient: Array) -> Array:
    """Unit vector along a gradient, also where its norm overflows."""
    if not np.all(np.isfinite(gradient)):
        along = (~np.isfinite(gradient)).astype(np.float64)
    else:
        along = gradient / (float(np.abs(gradient).max()) or 1.0)
    length = float(np.linalg.norm(along)) or 1.0
    return along / length
