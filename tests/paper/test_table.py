"""A figure's table survives its file, and says what is wrong with a broken one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import DataError, InvalidInput
from dpaudit_paper import Table

words = st.text(alphabet="abc ,\"'=é", min_size=1, max_size=8).filter(lambda w: w.strip() == w)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
values = st.one_of(st.none(), st.integers(-(2**53), 2**53), numbers, words)


@given(st.lists(st.tuples(values, values), max_size=6))
def test_reading_what_was_written_gives_the_same_table(rows):
    table = Table.of([{"one": a, "two": b} for a, b in rows] or [{"one": 1, "two": 2}])
    again = Table.from_csv(table.to_csv())
    assert again.columns == table.columns
    for before, after in zip(table.rows, again.rows, strict=True):
        assert [float(v) if isinstance(v, int | float) else v for v in before] == [
            float(v) if isinstance(v, int | float) else v for v in after
        ]


def test_what_is_no_number_is_a_gap_and_reads_as_nan():
    table = Table.of([{"x": float("nan")}, {"x": math.inf}, {"x": 1.5}])
    assert table.column("x") == [None, None, 1.5]
    assert [math.isnan(v) for v in table.numbers("x")] == [True, True, False]


def test_rows_by_name_may_leave_columns_out():
    table = Table.of([{"a": 1}, {"b": 2}])
    assert table.columns == ("a", "b")
    assert table.rows == ((1, None), (None, 2))


def test_one_number_of_many_rows_is_refused():
    table = Table.of([{"a": 1}, {"a": 2}])
    with pytest.raises(InvalidInput, match="one row is needed to read one a, got 2"):
        table.number("a")
    with pytest.raises(InvalidInput, match="column must be one of a, got 'b'"):
        table.column("b")


@pytest.mark.parametrize(
    ("text", "message"), [("", "is empty"), ("a,b\n1\n", "line 2 .* has 1 values, .* names 2")]
)
def test_a_broken_file_says_where(text, message):
    with pytest.raises(DataError, match=message):
        Table.from_csv(text)
