"""Score files: round trips are exact, and a bad file is named by its line."""

from __future__ import annotations

import builtins
import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInput, InvalidScores, MissingExtra
from dpaudit.scores import Scores, read_scores, write_scores


def text(content: str) -> Scores:
    return read_scores(io.StringIO(content, newline=""))


def same(one: Scores, two: Scores) -> bool:
    return (
        one.score.tobytes() == two.score.tobytes()  # bytes: -0.0 and 0.0 are different here
        and np.array_equal(one.inserted, two.inserted)
        and np.array_equal(one.run, two.run)
        and np.array_equal(one.canary, two.canary)
    )


@pytest.fixture
def awkward() -> Scores:
    return Scores(
        score=[0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, math.inf, -math.inf, 1e22],
        inserted=[1, 0, 1, 0, 1, 0, 1, 0],
        run=[0, 0, 2**62, 3, 4, -1, 6, 7],
        canary=[0, 1, 0, 0, 0, 0, 99_999, 0],
    )


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet", "scores.PQ", "scores"])
def test_round_trip_is_exact(awkward: Scores, tmp_path: Path, name: str) -> None:
    write_scores(awkward, tmp_path / name)
    assert same(read_scores(tmp_path / name), awkward)
    assert [p.name for p in tmp_path.iterdir()] == [name]  # and no draft is left behind


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.booleans()), min_size=1, max_size=20))
def test_any_float_survives_csv(rows: list[tuple[float, bool]]) -> None:
    content = "score,inserted\n" + "".join(f"{score!r},{flag}\n" for score, flag in rows)
    assert text(content).score.tobytes() == np.array([score for score, _ in rows]).tobytes()


@pytest.mark.parametrize(
    "content",
    [
        "score,inserted\n1.5,1\n-2,0\n",
        "\ufeffscore,inserted\r\n1.5,1\r\n-2,0\r\n",
        '"score","inserted"\n"1.5","1"\n"-2","0"\n',
        '\ufeff"score","inserted"\n1.5,1\n-2,0\n',
        "inserted, Score ,note\ntrue, 1.5,hello\nFALSE,-2.0,\n",
        "score,inserted\n1.5,1\n\n-2,0\n\n",
        "score,inserted\r1.5,1.0\r-2,0.0",
        'note,score,inserted\n"two\nlines",1.5,1\n"a,b",-2,0\n',
    ],
)
def test_one_table_in_many_spellings(content: str) -> None:
    for scores in (text(content), read_scores(io.BytesIO(content.encode()))):
        assert scores.score.tolist() == [1.5, -2.0]
        assert scores.inserted.tolist() == [True, False]


def test_run_and_canary_are_read_where_they_are() -> None:
    scores = text("canary,score,run,inserted\n7,1,3,1\n8,2,3,0\n")
    assert scores.run.tolist() == [3, 3]
    assert scores.canary.tolist() == [7, 8]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    content = "Loss,member,score\n1.5,1,9\n-2,0,9\n"
    scores = read_scores(io.StringIO(content), score_column="loss", label_column="Member")
    assert scores.score.tolist() == [1.5, -2.0]
    assert scores.inserted.tolist() == [True, False]
    with pytest.raises(InvalidScores, match=r"no column 'inserted'.*--label-column"):
        read_scores(io.StringIO(content), score_column="loss")
    with pytest.raises(InvalidScores, match="JSON, which has no columns"):
        read_scores(io.StringIO("{}"), format="json", score_column="loss")
    with pytest.raises(InvalidInput, match="score_column must be the name of a column, got ''"):
        read_scores(io.StringIO(content), score_column="")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("score,inserted\n", "header and no rows"),
        ("score,inserted\n\n\n", "header and no rows"),
        ("score,label\n1,1\n", r"no column 'inserted'; its header has 'score', 'label'"),
        ("1.0,1\n2.0,0\n", "no column 'score' and no column 'inserted'"),
        ("score;inserted\n1;1\n", "separate columns by commas"),
        ("score,score,inserted\n1,1,1\n", "2 columns named 'score'"),
        ("score,inserted\n1,1\nabc,0\n", "line 3: score must be a number, got 'abc'"),
        ("score,inserted\n1,1\n\nnan,0\n", "line 4: score must be a number, got 'nan'"),
        ("score,inserted\n1,1\n2\n", "line 3: inserted is missing"),
        ("score,inserted\n,1\n", "line 2: score is missing"),
        ("score,inserted\n1,2\n", "line 2: inserted must be 0 or 1, true or false, got '2'"),
        ("score,inserted\n1,yes\n", "line 2: inserted must be 0 or 1"),
        ("score,inserted,run\n1,1,0.5\n", "line 2: run must be a whole number, got '0.5'"),
        ("score,inserted,run\n1,1,99999999999999999999\n", "line 2: run must be a whole number"),
        ("score,inserted\n1,1\n1_000,0\n", "line 3: score must be a number, got '1_000'"),
        ("score,inserted\n١,1\n", "line 2: score must be a number"),
        ("score,inserted,run\n1,1,２\n", "line 2: run must be a whole number"),
        ("score,inserted,run\n1,1,1_0\n", "line 2: run must be a whole number"),
        ("score,inserted,run,canary\n1,1,3,0\n2,0,4,0\n1,1,3,0\n", "first is run 3, canary 0"),
    ],
)
def test_bad_csv_is_named_by_its_line(content: str, message: str) -> None:
    with pytest.raises(InvalidScores, match=message):
        text(content)


def test_the_line_is_right_beyond_the_first_chunk() -> None:
    lines = ["score,inserted"] + ["0.5,1"] * 70_000
    lines[69_999] = "0.5,maybe"
    with pytest.raises(InvalidScores, match="line 70000: inserted"):
        text("\n".join(lines))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidScores, match=r"none\.csv: No such file"):
        read_scores(tmp_path / "none.csv")
    with pytest.raises(InvalidScores, match="got a folder"):
        read_scores(tmp_path)
    for content in (b"\x80\x81score", b"PAR1\x00\xff\xfe"):
        (tmp_path / "binary.csv").write_bytes(content)
        with pytest.raises(InvalidScores, match="UTF-8"):
            read_scores(tmp_path / "binary.csv")
        with (
            (tmp_path / "binary.csv").open(encoding="utf-8") as stream,
            pytest.raises(InvalidScores, match="UTF-8"),
        ):
            read_scores(stream)


def test_errors_fit_one_line(tmp_path: Path) -> None:
    (tmp_path / "not.parquet").write_text("score,inserted\n1,1\n")
    with pytest.raises(InvalidScores, match="not a Parquet file") as error:
        read_scores(tmp_path / "not.parquet")
    assert "\n" not in str(error.value)


def test_parquet_with_other_kinds_of_columns(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "scores.parquet"
    columns: dict[str, Any] = {
        "Score": arrow.array([1.0, 2.0], arrow.float32()),
        "note": ["a", "b"],
    }
    parquet.write_table(arrow.table(columns | {"inserted": [1, 0]}), path)
    assert read_scores(path).inserted.tolist() == [True, False]
    with path.open("rb") as stream:
        assert read_scores(stream, format="parquet").score.tolist() == [1.0, 2.0]
    for wrong, message in [
        ({"inserted": [1, None]}, "inserted is missing in 1 rows"),
        ({"inserted": [1, 5]}, "got 5 in row 1"),
        ({"other": [1, 5]}, "no column 'inserted'"),
        ({"inserted": [1, 0], "SCORE": [0.0, 0.0]}, "2 columns named 'score'"),
    ]:
        parquet.write_table(arrow.table(columns | wrong), path)
        with pytest.raises(InvalidScores, match=message):
            read_scores(path)


@pytest.mark.parametrize("kind", ["timestamp", "text", "date", "duration"])
def test_parquet_columns_that_are_not_numbers(tmp_path: Path, kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    values = {
        "timestamp": arrow.array([1, 2], arrow.timestamp("ns")),
        "text": arrow.array(["1", "2"]),
        "date": arrow.array([1, 2], arrow.date32()),
        "duration": arrow.array([1, 2], arrow.duration("s")),
    }
    parquet.write_table(
        arrow.table({"score": values[kind], "inserted": [1, 0]}), tmp_path / "a.parquet"
    )
    with pytest.raises(InvalidScores, match="score must be an array of numbers"):
        read_scores(tmp_path / "a.parquet")


def test_ten_copies_of_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    write_scores(Scores.from_samples([3.0, 2.0, 1.5], [0.1, 0.2, -1.0]), path)
    header, rows = path.read_text().split("\n", 1)
    path.write_text(f"{header}\n{rows * 10}")
    with pytest.raises(InvalidScores, match="more than once"):
        read_scores(path)


def test_parquet_without_pyarrow_says_what_to_install(
    awkward: Scores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return honest(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"dpaudit\[parquet\]"):
        write_scores(awkward, tmp_path / "scores.parquet")
    assert list(tmp_path.iterdir()) == []


def test_unknown_format_and_unwritable_place(awkward: Scores, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="csv, parquet, json, got 'xml'"):
        read_scores(io.StringIO(""), format="xml")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="csv, parquet, got 'json'"):
        write_scores(awkward, tmp_path / "x", format="json")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="folder that is there"):
        write_scores(awkward, tmp_path / "no" / "folder.csv")
    with pytest.raises(InvalidInput, match="which is a folder"):
        write_scores(awkward, tmp_path)


def test_a_failed_write_leaves_the_old_file(
    awkward: Scores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scores.csv"
    write_scores(awkward, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dpaudit.scores.files._write_csv", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_scores(Scores.from_samples([1.0], [0.0]), path)
    assert same(read_scores(path), awkward)


@pytest.mark.parametrize("name", ["thesis.csv", "thesis.parquet", "thesis"])
def test_a_file_that_dpaudit_did_not_write_is_not_replaced(
    awkward: Scores, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text("ten years of work")
    with pytest.raises(InvalidInput, match="was not written by dpaudit"):
        write_scores(awkward, path)
    assert path.read_text() == "ten years of work"


def test_a_stream_stays_open_for_its_owner() -> None:
    stream = io.BytesIO(b"score,inserted\n1,1\n")
    read_scores(stream)
    assert not stream.closed


def test_a_million_rows_come_back(tmp_path: Path) -> None:
    path, rows = tmp_path / "million.csv", 1_000_000
    score = np.random.default_rng(0).standard_normal(rows)
    write_scores(Scores(score=score, inserted=np.arange(rows) % 2 == 0), path)
    scores = read_scores(path)
    assert np.array_equal(scores.score, score)


def test_scores_import_neither_torch_nor_pandas() -> None:
    code = (
        "import sys, dpaudit.scores;"
        "sys.exit(bool({'torch', 'pandas', 'pyarrow', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("copied", [20, 79])
def test_a_copy_of_a_part_of_a_file_is_refused(tmp_path: Path, copied: int) -> None:
    random = np.random.default_rng(0)
    rows = [f"{score!r},{i % 2}" for i, score in enumerate(random.normal(size=80).tolist())]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["score,inserted", *rows, *rows[:copied]]))
    with pytest.raises(InvalidScores, match=r"scores.csv: .* (exactly 2 times|occur again)"):
        read_scores(path)
    path.write_text(
        "\n".join(
            ["score,inserted,run,canary"]
            + [f"{r},{i},0" for i, r in enumerate([*rows, *rows[:copied]])]
        )
    )
    assert len(read_scores(path)) == 80 + copied  # numbered canaries were checked by their maker
