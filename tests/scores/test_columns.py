"""Packed columns come back bit for bit, and stay small where there is nothing to tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpaudit.errors import StoreError
from dpaudit.scores import columns

SHAPES = st.integers(0, 40)


@given(arrays.arrays(np.int64, SHAPES))
def test_integers(column: np.ndarray) -> None:
    packed = columns.pack_integers(column)
    assert np.array_equal(columns.unpack_integers(packed, len(column)), column)


@given(arrays.arrays(np.bool_, SHAPES))
def test_flags(column: np.ndarray) -> None:
    assert np.array_equal(columns.unpack_flags(columns.pack_flags(column), len(column)), column)


@given(
    arrays.arrays(np.float64, SHAPES, elements=st.floats(allow_nan=False))
    | arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32, allow_nan=False))
)
def test_numbers(column: np.ndarray) -> None:
    column = column.astype(np.float64)
    packed = columns.pack_numbers(column)
    assert columns.unpack_numbers(packed, len(column)).tobytes() == column.tobytes()


def test_sizes() -> None:
    rows = 100_000
    single = np.random.default_rng(0).standard_normal(rows).astype(np.float32)
    assert len(columns.pack_integers(np.arange(rows))) < 5_000
    assert len(columns.pack_integers(np.zeros(rows, dtype=np.int64))) < 5_000
    assert len(columns.pack_flags(np.ones(rows, dtype=bool))) == rows / 8
    assert len(columns.pack_numbers(single.astype(np.float64))) == 4 * rows + 1


def test_damage_is_noticed() -> None:
    for unpack, content in [
        (columns.unpack_integers, b"nonsense"),
        (columns.unpack_integers, columns.pack_integers(np.arange(4))),
        (columns.unpack_flags, b"\0\0"),
        (columns.unpack_numbers, b"4abc"),
        (columns.unpack_numbers, b""),
        (columns.unpack_numbers, columns.pack_numbers(np.zeros(4))),
    ]:
        with pytest.raises(StoreError):
            unpack(content, 3)
