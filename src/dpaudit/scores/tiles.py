"""Tiles: the scores and failures of a part of an audit, and their bytes in the store."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array, Integers
from dpaudit._validate import printable
from dpaudit.errors import InvalidScores
from dpaudit.scores.table import Scores, labels, numbers, store_columns, whole

_WHOLE_FAILURES = 100
"""Failed runs from this number on keep less: a million of them must not fill a disk."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreBlock:
    """The scores of one tile of an audit, ready to be stored. All columns have the same length.

    See also: `dpaudit.scores.Store`.

    Arguments:
        run: Number of the run in the audit.
        canary: Number of the canary in its run.
        horizon: Number of steps after which the score was taken: an audit of a training of T steps
            has horizon T, and earlier ones if the user asked for them.
        inserted: Whether the canary was inserted in that run.
        score: The score; higher means "inserted". NaN is refused.
        played_on: Machine, device and precision of the tile, in a few words.

    Example:
        >>> block = ScoreBlock(
        ...     run=[0, 1], canary=[0, 0], horizon=[250, 250], inserted=[1, 0], score=[3.2, -0.1]
        ... )
        >>> len(block), block.horizons
        (2, (250,))
    """

    run: Integers
    canary: Integers
    horizon: Integers
    inserted: NDArray[np.bool_]
    score: Array
    played_on: str = ""

    def __post_init__(self) -> None:
        store_columns(
            self,
            run=whole("run", self.run),
            canary=whole("canary", self.canary),
            horizon=whole("horizon", self.horizon),
            inserted=labels(self.inserted),
            score=numbers(self.score),
        )

    def __len__(self) -> int:
        return len(self.score)

    @property
    def horizons(self) -> tuple[int, ...]:
        """The different horizons in the block, ascending."""
        return tuple(np.unique(self.horizon).tolist())

    def scores(self, horizon: int) -> Scores:
        """The rows of one horizon, as a table of scores."""
        rows = self.horizon == horizon
        return Scores(
            score=self.score[rows],
            inserted=self.inserted[rows],
            run=self.run[rows],
            canary=self.canary[rows],
        )


@final
@dataclass(frozen=True, kw_only=True)
class Failure:
    """One training that failed: it raised, ended its process, or its score was not finite.

    Arguments:
        run: Number of the run in the audit.
        inserted: Number of its canaries that were inserted.
        canaries: Number of canaries of the run.
        error: The exception; long ones are cut in the middle.
        traceback: Where it was raised; long ones are cut in the middle.
    """

    run: int
    inserted: int
    canaries: int
    error: str
    traceback: str

    def __post_init__(self) -> None:
        for name, first, later in (("error", 1_000, 200), ("traceback", 4_000, 400)):
            text = getattr(self, name)
            if self.run >= _WHOLE_FAILURES:  # in signs of one byte, or two if JSON escapes them
                text = printable(text).encode("ascii", "backslashreplace").decode()
            longest = first if self.run < _WHOLE_FAILURES else later
            object.__setattr__(self, name, _cut(text, longest))

    def to_dict(self) -> dict[str, Any]:
        """The failure as plain data."""
        return asdict(self)


_SCORES, _FAILURE = b"dps1", b"dpf1"
_HEADER = struct.Struct("<4sQQB")  # kind, rows, bytes of the coded columns, bytes of a score


def pack(tile: ScoreBlock | Failure) -> bytes:
    """A tile as bytes, for the store and for the files of jobs: small, exact and plain data.

    Runs, canaries and horizons are stored as differences, which compress well; labels are one bit;
    scores have single precision where that is exact, as it is for a float32 engine.
    """
    if isinstance(tile, Failure):
        return _FAILURE + json.dumps(tile.to_dict()).encode()
    counts = np.stack([tile.run, tile.canary, tile.horizon])
    steps = np.diff(counts, prepend=np.zeros((3, 1), dtype=np.int64))  # may wrap around
    coded = zlib.compress(steps.astype("<i8").tobytes() + np.packbits(tile.inserted).tobytes(), 1)
    with np.errstate(over="ignore"):
        scores = tile.score.astype("<f4")
    if not np.array_equal(scores.astype(np.float64), tile.score):
        scores = tile.score.astype("<f8")
    header = _HEADER.pack(_SCORES, len(tile), len(coded), scores.itemsize)
    return header + coded + scores.tobytes()


def unpack(content: bytes) -> ScoreBlock | Failure:
    """The tile that `pack` packed; `InvalidScores` if the bytes are damaged.

    Never decompresses more than the tile has.
    """
    try:
        if content[:4] == _FAILURE:
            return Failure(**json.loads(content[4:]))
        kind, rows, size, width = _HEADER.unpack_from(content)
        start, expected = _HEADER.size, 24 * rows + -(-rows // 8)
        if kind != _SCORES or width not in (4, 8) or rows > len(content):
            raise ValueError("its header is wrong")
        coded = zlib.decompressobj().decompress(content[start : start + size], expected + 1)
        if len(coded) != expected or len(content) != start + size + width * rows:
            raise ValueError("a column has the wrong length")
        steps = np.frombuffer(coded, dtype="<i8", count=3 * rows).reshape(3, rows)
        run, canary, horizon = np.cumsum(steps, axis=1, dtype=np.int64)
        bits = np.frombuffer(coded, dtype=np.uint8, offset=24 * rows)
        score = np.frombuffer(content, dtype=f"<f{width}", offset=start + size)
        return ScoreBlock(
            run=run,
            canary=canary,
            horizon=horizon,
            inserted=np.unpackbits(bits, count=rows).astype(np.bool_),
            score=score.astype(np.float64),
        )
    except (ValueError, TypeError, struct.error, zlib.error) as error:
        raise InvalidScores(f"the bytes of a tile are damaged: {error}") from None


def _cut(text: str, longest: int) -> str:
    """The text as it can be stored: at most ``longest`` characters, and valid Unicode."""
    text = text.encode("utf8", "backslashreplace").decode("utf8")
    if len(text) <= longest:
        return text
    half = longest // 2 - 25
    return f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"
