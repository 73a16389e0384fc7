"""Checks of the four counts that every two-error method starts from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidScores

Array = NDArray[np.float64]


def broadcast_counts(
    false_positives: ArrayLike,
    false_negatives: ArrayLike,
    negatives: ArrayLike,
    positives: ArrayLike,
) -> tuple[Array, Array, Array, Array]:
    """The four counts as float arrays of one shape, or an error that names the bad one."""
    fp, fn, n, p = np.broadcast_arrays(
        *(np.asarray(v) for v in (false_positives, false_negatives, negatives, positives))
    )
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
