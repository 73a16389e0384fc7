"""Columns of scores as bytes: small, exact and fast to read.

An audit of 100,000 canaries has as many rows at each horizon, but only its scores are hard to
compress: runs and canaries count upwards, and the label of a canary is one bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array, Integers
from dpaudit.errors import StoreError
from dpaudit.scores.table import Scores

Packed = tuple[int, bytes, bytes, bytes, bytes]
"""Number of rows, then the columns run, canary, inserted and score."""


def pack(scores: Scores) -> Packed:
    """The columns of a table as bytes."""
    return (
        len(scores),
        pack_integers(scores.run),
        pack_integers(scores.canary),
        pack_flags(scores.inserted),
        pack_numbers(scores.score),
    )


def unpack(parts: Sequence[Packed]) -> Scores:
    """Several packed tables as one. Memory beside the result is that of the largest part."""
    if any(len(part[4]) - 1 not in (4 * part[0], 8 * part[0]) for part in parts):
        raise StoreError("a column of scores in the store is damaged")
    total = sum(part[0] for part in parts)
    run, canary = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    inserted, score = np.empty(total, dtype=bool), np.empty(total)
    start = 0
    for rows, *content in parts:
        here = slice(start, start + rows)
        run[here] = unpack_integers(content[0], rows)
        canary[here] = unpack_integers(content[1], rows)
        inserted[here] = unpack_flags(content[2], rows)
        score[here] = unpack_numbers(content[3], rows)
        start += rows
    for column in (run, canary, inserted, score):
        column.flags.writeable = False  # the table need not copy it
    return Scores(run=run, canary=canary, inserted=inserted, score=score)


def pack_integers(column: Integers) -> bytes:
    """Differences, deflated: a column that counts upwards takes a few hundred bytes.

    Differences may wrap around; the sum that undoes them wraps around, too.
    """
    steps = np.diff(column.astype(np.int64), prepend=np.int64(0))
    return zlib.compress(steps.astype("<i8").tobytes(), level=1)


def unpack_integers(content: bytes, rows: int) -> Integers:
    """The column that `pack_integers` packed. Never decompresses more than ``rows`` values."""
    try:
        steps = np.frombuffer(zlib.decompressobj().decompress(content, 8 * rows + 1), dtype="<i8")
    except (zlib.error, ValueError):
        raise StoreError("a column of whole numbers in the store is damaged") from None
    return _whole(np.cumsum(steps, dtype=np.int64), rows)


def pack_flags(column: NDArray[np.bool_]) -> bytes:
    """One bit per row."""
    return np.packbits(column).tobytes()


def unpack_flags(content: bytes, rows: int) -> NDArray[np.bool_]:
    """The column that `pack_flags` packed."""
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    if len(bits) != 8 * -(-rows // 8):
        raise StoreError(f"a column in the store has {len(bits)} bits for {rows} rows")
    return bits[:rows].astype(np.bool_)


def pack_numbers(column: Array) -> bytes:
    """Single precision where that is exact, as it is for scores of a float32 engine."""
    with np.errstate(over="ignore"):
        single = column.astype("<f4")
    exact = np.array_equal(single.astype(np.float64), column)
    return b"4" + single.tobytes() if exact else b"8" + column.astype("<f8").tobytes()


def unpack_numbers(content: bytes, rows: int) -> Array:
    """The column that `pack_numbers` packed."""
    kind = {b"4": "<f4", b"8": "<f8"}.get(content[:1])
    if kind is None or (len(content) - 1) % int(kind[-1]):
        raise StoreError("a column of scores in the store is damaged")
    return _whole(np.frombuffer(content, dtype=kind, offset=1).astype(np.float64), rows)


def _whole(column: NDArray[Any], rows: int) -> NDArray[Any]:
    if len(column) != rows:
        raise StoreError(f"a column in the store has {len(column)} values for {rows} rows")
    return column
