"""Columns of scores as bytes: small, exact and quick to read back.

An audit of 100,000 canaries has as many rows at each horizon, in which only the scores hold news:
runs and canaries count upwards, and a coin is one bit.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import StoreError


def pack_integers(column: NDArray[np.int64]) -> bytes:
    """Differences, deflated: a column that counts upwards takes a few hundred bytes.

    Differences may wrap around; so does the sum that undoes them.
    """
    steps = np.diff(column.astype(np.int64), prepend=np.int64(0))
    return zlib.compress(steps.astype("<i8").tobytes(), level=1)


def unpack_integers(content: bytes, rows: int) -> NDArray[np.int64]:
    """What `pack_integers` packed."""
    try:
        steps = np.frombuffer(zlib.decompress(content), dtype="<i8")
    except (zlib.error, ValueError):
        raise StoreError("a column of whole numbers in the store is damaged") from None
    return _whole(np.cumsum(steps, dtype=np.int64), rows)


def pack_flags(column: NDArray[np.bool_]) -> bytes:
    """One bit a row."""
    return np.packbits(column).tobytes()


def unpack_flags(content: bytes, rows: int) -> NDArray[np.bool_]:
    """What `pack_flags` packed."""
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    if len(bits) != 8 * -(-rows // 8):
        raise StoreError(f"a column in the store has {len(bits)} bits for {rows} rows")
    return bits[:rows].astype(np.bool_)


def pack_numbers(column: NDArray[np.float64]) -> bytes:
    """Single precision where that is exact, as it is for scores of a float32 engine."""
    with np.errstate(over="ignore"):
        single = column.astype("<f4")
    exact = np.array_equal(single.astype(np.float64), column)
    return b"4" + single.tobytes() if exact else b"8" + column.astype("<f8").tobytes()


def unpack_numbers(content: bytes, rows: int) -> NDArray[np.float64]:
    """What `pack_numbers` packed."""
    kind = {b"4": "<f4", b"8": "<f8"}.get(content[:1])
    if kind is None or (len(content) - 1) % int(kind[-1]):
        raise StoreError("a column of scores in the store is damaged")
    return _whole(np.frombuffer(content, dtype=kind, offset=1).astype(np.float64), rows)


def _whole(column: NDArray[Any], rows: int) -> NDArray[Any]:
    if len(column) != rows:
        raise StoreError(f"a column in the store has {len(column)} values for {rows} rows")
    return column
