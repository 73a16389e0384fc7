"""Types of arrays, and arrays of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit._validate import shown
from dpaudit.errors import InvalidInput, InvalidScores

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def as_array(name: str, values: object) -> NDArray[Any]:
    """The values as an array of numpy; an error where the object does not give one.

    Arguments:
        name: The argument, for the message.
        values: An array, a list, or a tensor of another library.
    """
    try:
        return np.asarray(values)
    except Exception as error:  # tensors raise errors of their own libraries
        if getattr(values, "requires_grad", False) is True:
            remedy = f"{name} requires gradients: pass {name}.detach().cpu()"
        elif hasattr(values, "detach"):
            remedy = f"pass {name}.detach().float().cpu()"
        else:
            remedy = "use a list of numbers or an array of numpy"
        raise InvalidInput(
            f"{name} must be an array of numbers, got a {type(values).__name__} that is none "
            f"({shown(str(error))}); {remedy}"
        ) from None


def numbers(name: str, values: object) -> Array:
    """The values as an array of floats of any shape."""
    given = as_array(name, values)
    if given.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} must be an array of numbers, got {shown(values)}")
    return given.astype(np.float64)


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
