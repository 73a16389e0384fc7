"""Columns of scores from and to data frames: pandas, polars, pyarrow. None of them is imported
unless one is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidScores, MissingExtra

REQUIRED, OPTIONAL = ("score", "inserted"), ("run", "canary")


def is_frame(table: object) -> bool:
    """Whether this is a data frame: something with named columns.

    Example:
        >>> is_frame([1.0, 2.0])
        False
    """
    return hasattr(table, "columns") and hasattr(table, "__getitem__")


def columns_of(frame: Any) -> dict[str, NDArray[Any]]:
    """The columns of a data frame that a table of scores has, as arrays; others are ignored.

    Arguments:
        frame: A data frame with the columns ``score`` and ``inserted``, and perhaps ``run`` and
            ``canary``.
    """
    if not is_frame(frame):
        raise InvalidScores(
            f"scores must be a data frame with named columns, got {type(frame).__name__}; use "
            "Scores(score=..., inserted=...) for arrays"
        )
    names = list(getattr(frame, "column_names", frame.columns))
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InvalidScores(
            f"the data frame must have the columns {' and '.join(REQUIRED)}, got "
            f"{', '.join(map(str, names)) or 'none'}; rename the column for {missing[0]!r}"
        )
    return {name: np.asarray(frame[name]) for name in (*REQUIRED, *OPTIONAL) if name in names}


def frame_of(columns: dict[str, NDArray[Any]]) -> Any:
    """The columns as a pandas data frame, which does not share their memory."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise MissingExtra("a data frame", "pandas") from None
    return pandas.DataFrame(columns, copy=True)
