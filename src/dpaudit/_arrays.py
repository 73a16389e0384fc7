"""Types of arrays, and arrays of counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidScores

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def broadcast_counts(*counts: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """False positives, false negatives, negatives and positives as float arrays of one shape."""
    fp, fn, n, p = np.broadcast_arrays(*map(np.asarray, counts))
    for name, errors, of, total in (
        ("false_positives", fp, "negatives", n),
        ("false_negatives", fn, "positives", p),
    ):
        # Counts often arrive as floats that are whole; anything else is not a count.
        bad = ~((errors >= 0) & (errors <= total) & (errors == np.floor(errors)))
        bad |= total != np.floor(total)
        if bad.any():
            first = np.unravel_index(int(bad.argmax()), bad.shape)
            raise InvalidScores(
                f"{name} must be a whole number from 0 to {of}, "
                f"got {errors[first]} with {of} = {total[first]}"
            )
    return fp.astype(float), fn.astype(float), n.astype(float), p.astype(float)
