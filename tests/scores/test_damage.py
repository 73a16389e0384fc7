"""A damaged store raises StoreError; it never gives other numbers, and never another exception."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.errors import StoreError
from dpaudit.scores import Failure, ScoreBlock, Store
from dpaudit.scores.store import _seal
from dpaudit.scores.tiles import pack, unpack

SETTINGS = {"mechanism": {"steps": 250, "noise_multiplier": 4}, "runs": 64, "seed": 0}


def make(path: Path) -> None:
    """A store with two audits of several tiles, horizons and failures."""
    with Store.open(path) as store:
        for name in ("one", "zwei – ε"):
            record = store.begin(name, SETTINGS, {"torch": "2.13", "device": "cpu"})
            for tile in range(8):
                run = np.tile(np.arange(8) + tile * 8, 2)
                block = ScoreBlock(
                    run=run,
                    canary=np.zeros_like(run),
                    horizon=np.repeat([125, 250], 8),
                    inserted=run % 2 == 0,
                    score=np.random.default_rng(tile).standard_normal(16),
                )
                record.add_tile(tile, block)
            failure = Failure(run=64, inserted=1, canaries=1, error="E: ε", traceback="here\n")
            record.add_tiles([(8, failure)])
            record.finish({"lower": {"epsilon": 2.42}, "verdict": "consistent"})


def reading(path: Path) -> list[Any]:
    """Everything that can be read from a store."""
    with Store.open(path, create=False) as store:
        return [
            (
                record.id,
                record.name,
                dict(record.configuration),
                record.created,
                record.finished,
                dict(record.summary or {}),
                record.versions,
                sorted(record.finished_tiles()),
                record.failures(),
                [
                    (horizon, *(getattr(scores, n).tobytes() for n in ("score", "inserted", "run")))
                    for horizon in record.horizons()
                    for scores in [record.scores(horizon)]
                ],
            )
            for record in store.audits()
        ]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "audits.sqlite"
    make(path)
    return path


def damaged(content: bytes, number: int) -> bytes:
    """One of several kinds of damage, at a random place."""
    random = np.random.default_rng(number)
    changed = bytearray(content)
    place = int(random.integers(len(content)))
    match number % 5:
        case 0 | 1:
            changed[place] ^= 1 << int(random.integers(8))
        case 2:
            length = int(random.integers(1, 64))
            changed[place : place + length] = random.bytes(len(changed[place : place + length]))
        case 3:
            page = place // 4096 * 4096
            changed[page : page + 4096] = bytes(len(changed[page : page + 4096]))
        case 4:
            del changed[place:]
    return bytes(changed)


def test_300_corruptions_change_no_number(original: Path, tmp_path: Path) -> None:
    content, whole, noticed = original.read_bytes(), reading(original), 0
    path = tmp_path / "damaged.sqlite"
    for number in range(300):
        path.write_bytes(damaged(content, number))
        try:
            assert reading(path) == whole, number
        except StoreError:
            noticed += 1
    assert noticed > 100  # the others hit bytes that SQLite does not use


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tiles SET content = zeroblob(length(content))",
        "UPDATE tiles SET content = substr(content, 1, length(content) - 1)",
        "UPDATE tiles SET tile = tile + 100",
        "UPDATE tiles SET phase = 1 WHERE tile = 3",
        "UPDATE tiles SET finished = 'today'",
        "DELETE FROM tiles WHERE tile = 3",
        "UPDATE audits SET configuration = replace(configuration, '250', '251')",
        "UPDATE audits SET configuration = '{'",
        "UPDATE audits SET summary = replace(summary, '2.42', '1.13')",
        "UPDATE audits SET summary = x'ff'",
        "UPDATE audits SET finished = 17",
        "UPDATE audits SET name = NULL WHERE name = 'one'",
        "UPDATE sessions SET versions = '[]'",
    ],
)
def test_every_changed_value_is_noticed(original: Path, tmp_path: Path, change: str) -> None:
    path = tmp_path / "changed.sqlite"
    path.write_bytes(original.read_bytes())
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="damaged"):
        reading(path)


def test_long_failures_are_cut() -> None:
    failure = Failure(
        run=0, inserted=1, canaries=1, error="first" + "x" * 10**6 + "last", traceback="y" * 10**7
    )
    assert len(failure.error) <= 1_000
    assert failure.error.startswith("first")
    assert failure.error.endswith("last")
    assert len(failure.traceback) <= 4_000


@pytest.mark.parametrize("column", ["id", "name", "configuration", "created"])
@pytest.mark.parametrize("value", [None, b"x", b"", 3, 0.5, "{", "[" * 100_000])
def test_wrong_content_under_a_right_seal_is_an_error(
    column: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    make(path)
    connection = sqlite3.connect(path)
    (*row, _), names = (
        connection.execute("SELECT * FROM audits LIMIT 1").fetchone(),
        [one[1] for one in connection.execute("PRAGMA table_info(audits)")],
    )
    old, row[names.index(column)] = row[0], value
    setting = ", ".join(f"{name} = ?" for name in names)
    try:
        connection.execute(f"UPDATE audits SET {setting} WHERE id = ?", (*row, _seal(row), old))
    except sqlite3.IntegrityError:
        return
    connection.commit()
    connection.close()
    with contextlib.suppress(StoreError), Store.open(path) as store:
        for record in store.audits():
            assert isinstance(record.label + record.created, str)


@pytest.mark.parametrize("sign", ["x", "\n", '"', "\\", "💥", "\udcff", "\x00"])
def test_a_failure_after_the_first_hundred_takes_at_most_2_kB(sign: str, tmp_path: Path) -> None:
    def size(*runs: int) -> int:
        with Store.open(tmp_path / f"{len(runs)}") as store:
            record = store.begin("one", SETTINGS, {})
            record.add_tiles([(run, failure(run)) for run in runs])
            (pages,) = store.rows(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            )
            return int(pages[0])

    def failure(run: int) -> Failure:
        text = sign * 10**4
        return Failure(run=run, inserted=1, canaries=1, error=text, traceback=text)

    assert size(*range(300)) - size(*range(100)) <= 200 * 2_000
    assert unpack(pack(failure(1_000))) == failure(1_000)


def test_text_that_is_not_unicode_can_be_stored(tmp_path: Path) -> None:
    failure = Failure(run=0, inserted=1, canaries=1, error="\udcff", traceback="\ud800")
    with Store.open(tmp_path / "a.sqlite") as store:
        record = store.begin(None, SETTINGS, {})
        record.add_tiles([(0, failure)])
        assert record.failures() == (failure,)
