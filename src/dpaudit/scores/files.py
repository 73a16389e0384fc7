"""Scores in files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._inputs import lines_of, open_input
from dpaudit._outputs import CSV_HEADER, MARKER, check_output, write_whole
from dpaudit.errors import DpauditError, InvalidInput, InvalidScores, MissingExtra
from dpaudit.scores.reports import read_report
from dpaudit.scores.table import OPTIONAL, REQUIRED, Scores

Format = Literal["csv", "parquet"]
Readable = Literal["csv", "parquet", "json"]

_FORMATS = ("csv", "parquet")
_READABLE = (*_FORMATS, "json")
_CHUNK = 65_536  # rows converted at once: fast, and little memory beside the result
_MOST_ROWS = 200_000_000
ROOM_OF_A_ROW = 70
"""Bytes of a file that a score may need."""


def read_scores(
    source: str | os.PathLike[str] | IO[str] | IO[bytes],
    *,
    format: Readable | None = None,
    score_column: str = "score",
    label_column: str = "inserted",
) -> Scores:
    """Read scores from a CSV, Parquet or JSON file, or from an open stream.

    A CSV file has a header with the columns ``score`` and ``inserted`` (0 or 1, true or false) and
    may have ``run`` and ``canary`` (whole numbers); other columns are ignored. Numbers are written
    with ASCII digits and without separators. JSON is that of memaudit's report, of PrivacyGuard
    (``train_scores`` and ``test_scores``) or of jax-privacy (``in_canary_scores`` and
    ``out_canary_scores``).

    See also: `write_scores`, `dpaudit.scores.Scores`.

    Arguments:
        source: A path, or a text or binary stream such as `sys.stdin`, which is left open.
        format: ``"csv"``, ``"parquet"`` or ``"json"``; by default from the file's ending.
        score_column: Name of the column of scores, in CSV and Parquet.
        label_column: Name of the column that says whether the canary was inserted.

    Example:
        >>> read_scores(io.StringIO("inserted,score\\n1,3.5\\n0,-0.25\\n"))
        Scores(1 inserted, 1 not, 2 runs)
    """
    given = {"score": score_column, "inserted": label_column}
    for argument, column in zip(("score_column", "label_column"), given.values(), strict=True):
        if not isinstance(column, str) or not column.strip():
            raise InvalidInput(f"{argument} must be the name of a column, got {column!r}")
    names = {column: name.strip().lower() for column, name in given.items()}
    if isinstance(source, str | os.PathLike):
        path = Path(_validate.path("source", source))
        try:
            with open_input(path, pipes=True) as stream:
                return _read(stream, format or _format_of(path), str(path), names)
        except OSError as error:
            raise InvalidScores(f"cannot read {path}: {error.strerror or error}") from None
        except InvalidInput as error:
            raise error if isinstance(error, InvalidScores) else InvalidScores(str(error)) from None
    if not hasattr(source, "read"):
        raise InvalidScores(
            f"source must be a path or an open file, got {_validate.shown(source)}; for columns "
            "use Scores(score=..., inserted=...)"
        )
    name = str(getattr(source, "name", "scores"))
    try:
        return _read(source, format or "csv", name, names)
    except (OSError, ValueError) as error:
        if isinstance(error, DpauditError):
            raise
        raise InvalidScores(f"cannot read {name}: {error}") from None  # for example, it is closed


def write_scores(
    scores: Scores,
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,
    overwrite: bool = False,
) -> None:
    """Write scores so that `read_scores` gives back the same numbers, bit for bit.

    The file appears whole or not at all.

    Arguments:
        scores: The table to write.
        path: The file to write; an existing one is replaced if it has scores of dpaudit, and
            otherwise refused.
        format: ``"csv"`` or ``"parquet"``; by default from the file's ending.
        overwrite: Replace any existing file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_scores(Scores.from_samples([1 / 3], [-0.1]), Path(folder, "scores.csv"))
        ...     print(Path(folder, "scores.csv").read_text())
        "score",inserted,run,canary
        0.3333333333333333,1,0,0
        -0.1,0,1,0
    """
    if not isinstance(scores, Scores):
        raise InvalidInput(f"scores must be a dpaudit.Scores, got {_validate.shown(scores)}")
    path = Path(_validate.path("path", path))
    chosen = _validate.one_of("format", format or _format_of(path), _FORMATS)
    write = _write_parquet if chosen == "parquet" else _write_csv
    check_output("path", path, overwrite=overwrite, room=ROOM_OF_A_ROW * len(scores))
    try:
        write_whole(path, lambda stream: write(scores, stream))
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from None


def _format_of(path: Path) -> Readable:
    endings: dict[str, Readable] = {".parquet": "parquet", ".pq": "parquet", ".json": "json"}
    return endings.get(path.suffix.lower(), "csv")


def _read(
    stream: IO[str] | IO[bytes], format: Readable, name: str, names: Mapping[str, str]
) -> Scores:
    if _validate.one_of("format", format, _READABLE) == "parquet":
        return _read_parquet(stream, name, names)
    if format == "json" and list(names) != list(names.values()):
        raise InvalidScores(
            f"{name} is JSON, which has no columns; leave out the names of columns, or write the "
            "scores as CSV"
        )
    read = read_report if format == "json" else partial(_read_csv, names=names)
    try:
        if isinstance(stream, io.TextIOBase) or isinstance(stream.read(0), str):
            return read(stream, name)  # type: ignore[arg-type]
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")  # type: ignore[type-var]
        try:
            return read(text, name)
        finally:
            text.detach()  # the stream belongs to the caller
    except UnicodeDecodeError as error:
        raise InvalidScores(f"{name} is not {format.upper()} in UTF-8: {error.reason}") from None


def _read_csv(stream: IO[str], name: str, *, names: Mapping[str, str]) -> Scores:
    reader = csv.reader(lines_of(stream, name))
    try:
        header = next(reader, None)
        if header is None:
            raise InvalidScores(f"{name} is empty; expected a header with score and inserted")
        # A text stream keeps the byte order mark, which then hides the quotes of the first cell.
        header = [cell.lstrip("\ufeff").strip(' "').lower() for cell in header]
        columns = _find_columns(header, name, names)
        chunks = list(_chunks(reader, columns, name))
    except csv.Error as error:
        raise InvalidScores(f"{name}, line {reader.line_num}: not CSV: {error}") from None
    if not chunks:
        raise InvalidScores(f"{name} has a header and no rows")
    return _table({column: np.concatenate([c[column] for c in chunks]) for column in columns}, name)


def _table(columns: dict[str, NDArray[Any]], name: str) -> Scores:
    try:
        return Scores(**columns)
    except InvalidScores as error:
        raise InvalidScores(f"{name}: {error}") from None


def _find_columns(header: list[str], name: str, names: Mapping[str, str]) -> dict[str, int]:
    """Where the columns we read stand in the header, which may call them otherwise."""
    called = {column: names.get(column, column) for column in (*REQUIRED, *OPTIONAL)}
    for column in called.values():
        if header.count(column) > 1:
            raise InvalidScores(f"{name} has {header.count(column)} columns named {column!r}")
    missing = [called[column] for column in REQUIRED if called[column] not in header]
    if missing:
        there = ", ".join(map(repr, header)) if any(header) else "nothing"
        remedy = "; name yours with score_column (--score-column) and label_column (--label-column)"
        if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
            remedy = "; separate columns by commas"
        raise InvalidScores(
            f"{name} has no column {' and no column '.join(map(repr, missing))}; "
            f"its header has {there}{remedy}"
        )
    return {c: header.index(name) for c, name in called.items() if name in header}


class _Labels(dict[str, bool]):
    """The spellings of 0 and 1, added when they first occur: one look-up per row."""

    def __missing__(self, cell: str) -> bool:
        label = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}.get(cell.strip().lower())
        label = float(cell) if label is None else label
        if label not in (0.0, 1.0):
            raise ValueError
        self[cell] = bool(label)
        return self[cell]


def _number(cell: str) -> float:
    number = float(cell)
    if number != number:
        raise ValueError
    return number


def _check_spelling(cells: list[str]) -> None:
    """Refuse what Python reads as a number and other programs do not: 1_000, or other digits."""
    text = "".join(cells)
    if "_" in text or not text.isascii():
        raise ValueError


def _chunks(reader: Any, columns: dict[str, int], name: str) -> Iterator[dict[str, NDArray[Any]]]:
    labels = _Labels()
    convert: dict[str, tuple[Callable[[str], Any], type, str]] = {
        "score": (float, np.float64, "a number"),
        "inserted": (labels.__getitem__, np.bool_, "0 or 1, true or false"),
        "run": (int, np.int64, "a whole number"),
        "canary": (int, np.int64, "a whole number"),
    }
    while True:
        line = reader.line_num + 1
        rows = list(islice(reader, _CHUNK))
        if not rows:
            return
        full = rows if all(rows) else [row for row in rows if row]  # without blank lines
        chunk: dict[str, NDArray[Any]] = {}
        try:
            for column, place in columns.items():
                parse, dtype, _ = convert[column]
                cells = list(map(itemgetter(place), full))
                _check_spelling(cells)
                chunk[column] = np.fromiter(map(parse, cells), dtype, len(full))
            if np.isnan(chunk["score"]).any():
                raise ValueError
        except (ValueError, IndexError, OverflowError):
            # Search the chunk for the first wrong row.
            convert["score"] = (_number, np.float64, "a number")
            _blame(rows, line, columns, convert, name)
        if full:
            yield chunk


def _blame(
    rows: list[list[str]],
    line: int,
    columns: dict[str, int],
    convert: dict[str, tuple[Callable[[str], Any], type, str]],
    name: str,
) -> NoReturn:
    for offset, row in enumerate(rows):
        for column, place in columns.items():
            if not row:
                continue
            parse, dtype, wanted = convert[column]
            where = f"{name}, line {line + offset}: {column}"
            if place >= len(row) or not row[place].strip():
                raise InvalidScores(f"{where} is missing")
            try:
                _check_spelling([row[place]])
                np.array(parse(row[place]), dtype)
            except (ValueError, OverflowError):
                shown = repr(row[place][:80])
                raise InvalidScores(f"{where} must be {wanted}, got {shown}") from None
    raise InvalidScores(f"{name}: a row after line {line} cannot be read")


def _write_csv(scores: Scores, stream: BinaryIO) -> None:
    columns = (scores.score, scores.inserted.view(np.int8), scores.run, scores.canary)
    stream.write(CSV_HEADER.encode())
    for start in range(0, len(scores), _CHUNK):
        part = [column[start : start + _CHUNK].tolist() for column in columns]
        # repr of a float is the shortest text that reads back as the same float.
        rows = (f"{s!r},{i},{r},{c}\n" for s, i, r, c in zip(*part, strict=True))
        stream.write("".join(rows).encode())


def _read_parquet(stream: IO[Any], name: str, names: Mapping[str, str]) -> Scores:
    arrow, parquet = _pyarrow()
    if isinstance(stream.read(0), str):
        raise InvalidScores(f"{name}: Parquet is binary; open the stream in binary mode")
    if not stream.seekable():
        stream = io.BytesIO(stream.read())
    try:
        file = parquet.ParquetFile(stream)
        given = file.schema_arrow.names
        columns = _find_columns([column.lower() for column in given], name, names)
        if file.metadata.num_rows > _MOST_ROWS:  # a small compressed file can claim any number
            raise InvalidScores(
                f"{name} has {file.metadata.num_rows} rows; at most {_MOST_ROWS} are read"
            )
        table = file.read(columns=[given[place] for place in columns.values()])
    except arrow.ArrowException as error:
        raise InvalidScores(f"{name} is not a Parquet file: {_first_line(error)}") from None
    if table.num_rows == 0:
        raise InvalidScores(f"{name} has columns and no rows")
    values = {}
    for column, place in columns.items():
        cells = table.column(given[place])
        if cells.null_count:
            raise InvalidScores(f"{name}: {column} is missing in {cells.null_count} rows")
        values[column] = cells.to_numpy()
    return _table(values, name)


def _write_parquet(scores: Scores, stream: BinaryIO) -> None:
    arrow, parquet = _pyarrow()
    columns = {c: getattr(scores, c) for c in (*REQUIRED, *OPTIONAL)}
    parquet.write_table(arrow.table(columns, metadata={"written": MARKER}), stream)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading and writing Parquet", "parquet") from None
    return pyarrow, pyarrow.parquet


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
