"""A small table: the measured values of a figure, stored as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpaudit.errors import DataError, InvalidInput

Value = str | int | float | None
Row = Mapping[str, Value]


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Named columns and rows of numbers, text and missing values.

    See also: `dpaudit_paper.base.Figure`, which measures one and draws it.

    Arguments:
        columns: Names of the columns, in order.
        rows: One tuple per row; `None` for a missing value.

    Example:
        >>> table = Table.of([{"sigma": 1, "epsilon": 4.3772}, {"sigma": 8, "epsilon": 0.4344}])
        >>> table.where(sigma=8).numbers("epsilon")
        [0.4344]
        >>> Table.from_csv(table.to_csv()) == table
        True
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidInput(
                    f"rows must have one value for each of {len(self.columns)} columns, "
                    f"got {len(row)}"
                )

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Table:
        """A table from rows by column name; absent entries are missing values."""
        given = list(rows)
        columns = tuple(dict.fromkeys(name for row in given for name in row))
        return cls(
            columns=columns,
            rows=tuple(tuple(_plain(row.get(name)) for name in columns) for row in given),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    def where(self, **wanted: Value) -> Table:
        """The rows that have these values."""
        places = [(self._place(name), value) for name, value in wanted.items()]
        rows = tuple(row for row in self.rows if all(row[at] == value for at, value in places))
        return Table(columns=self.columns, rows=rows)

    def column(self, name: str) -> list[Value]:
        """One column, gaps included."""
        place = self._place(name)
        return [row[place] for row in self.rows]

    def numbers(self, name: str) -> list[float]:
        """One column of numbers; a gap becomes NaN."""
        return [
            math.nan if value is None or isinstance(value, str) else float(value)
            for value in self.column(name)
        ]

    def words(self, name: str) -> list[str]:
        """The different values of one column as text, in the order of their first rows."""
        return list(dict.fromkeys(str(v) for v in self.column(name) if v is not None))

    def number(self, name: str) -> float:
        """The number in the only row of the table."""
        if len(self.rows) != 1:
            raise InvalidInput(f"one row is needed to read one {name}, got {len(self.rows)}")
        return self.numbers(name)[0]

    def to_csv(self) -> str:
        """The table as CSV, with ten digits. The quotes of the first name say that it is ours."""
        first, *others = self.columns
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        text.write(f'"{first}",')
        writer.writerow(others)
        writer.writerows([["" if v is None else v for v in row] for row in self.rows])
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Table:
        """The table that `to_csv` wrote."""
        lines = list(csv.reader(io.StringIO(text)))
        if not lines:
            raise DataError("the CSV file of a figure is empty; make the figure again")
        head, *body = lines
        for number, line in enumerate(body, start=2):
            if len(line) != len(head):
                raise DataError(
                    f"line {number} of the CSV file has {len(line)} values, and its head names "
                    f"{len(head)}; make the figure again"
                )
        return cls(
            columns=tuple(head), rows=tuple(tuple(_read(word) for word in line) for line in body)
        )

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in a file."""
        try:
            return cls.from_csv(path.read_text(encoding="utf8"))
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from None

    def _place(self, name: str) -> int:
        if name not in self.columns:
            names = ", ".join(self.columns)
            raise InvalidInput(f"column must be one of {names}, got {name!r}")
        return self.columns.index(name)


def _plain(value: object) -> Value:
    """Python's numbers for NumPy's; NaN becomes a missing value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return int(value)
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float):
        # Ten digits: devices and versions disagree beyond them, and files stay readable.
        return float(f"{number:.10g}") if math.isfinite(number) else None
    if isinstance(number, int):
        return number
    raise InvalidInput(f"a table holds numbers and words, got {value!r}")


def _read(word: str) -> Value:
    if word == "":
        return None
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
