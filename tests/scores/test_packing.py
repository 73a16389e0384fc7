"""Packed tiles come back bit for bit, stay small, and are refused if they are damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpaudit.errors import InvalidScores
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.scores.tiles import pack, unpack

NAMES = ("run", "canary", "horizon", "inserted", "score")
ROWS = st.shared(st.integers(0, 40), key="rows")


def columns(kind: type, **options: object) -> st.SearchStrategy[np.ndarray]:
    return ROWS.flatmap(lambda rows: arrays.arrays(kind, rows, **options))


@given(
    columns(np.int64),
    columns(np.int64),
    columns(np.bool_),
    columns(np.float64, elements=st.floats(allow_nan=False))
    | columns(np.float32, elements=st.floats(width=32, allow_nan=False)),
)
def test_a_tile_comes_back(
    run: np.ndarray, canary: np.ndarray, inserted: np.ndarray, score: np.ndarray
) -> None:
    tile = ScoreBlock(
        run=run, canary=canary, horizon=0 * run + 5, inserted=inserted, score=score.astype(float)
    )
    again = unpack(pack(tile))
    assert isinstance(again, ScoreBlock)
    for name in NAMES:
        assert getattr(again, name).tobytes() == getattr(tile, name).tobytes()


def tile_of(rows: int) -> ScoreBlock:
    single = np.random.default_rng(0).standard_normal(rows).astype(np.float32)
    run, zeros = np.arange(rows), np.zeros(rows, dtype=np.int64)
    return ScoreBlock(
        run=run, canary=zeros, horizon=zeros, inserted=run % 2 == 0, score=single.astype(float)
    )


def test_a_row_takes_little_more_than_its_score() -> None:
    assert len(pack(tile_of(100_000))) < 4.3 * 100_000


def test_a_failure_comes_back() -> None:
    failure = Failure(run=3, inserted=1, canaries=1, error="E: \u03b5", traceback="here\n")
    assert unpack(pack(failure)) == failure


@pytest.mark.parametrize("content", [b"", b"nonsense", b"dpf1{}", b"dpf1[1]", b"dps1" + bytes(17)])
def test_what_is_no_tile(content: bytes) -> None:
    if content.endswith(bytes(17)):
        content += b"too long"
    with pytest.raises(InvalidScores, match="damaged"):
        unpack(content)


def test_damage_of_the_length_is_noticed() -> None:
    whole = pack(tile_of(20))
    for wrong in (whole[:-1], whole + b"\0", whole[:30], whole[:4] + b"\xff" * 16 + whole[20:]):
        with pytest.raises(InvalidScores, match="damaged"):
            unpack(wrong)
