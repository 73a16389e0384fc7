"""The store: what goes in comes back, once, and what cannot go in says why."""

from __future__ import annotations

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dpaudit.errors import InvalidInput, StoreError
from dpaudit.scores import Failure, ScoreBlock, Store
from dpaudit.scores.store import canonical_json

CONFIGURATION = {"mechanism": {"steps": 250, "noise_multiplier": 4}, "runs": 8, "seed": 0}
VERSIONS = {"dpaudit": "0.1.0", "torch": "2.13.0", "device": "cpu"}


def block(tile: int, runs: int = 4, horizons: tuple[int, ...] = (125, 250)) -> ScoreBlock:
    """A tile as the engine would make it: a pure function of its number."""
    draw = np.random.default_rng(tile)
    run = np.tile(np.arange(runs) + tile * runs, len(horizons))
    return ScoreBlock(
        run=run,
        canary=np.zeros_like(run),
        horizon=np.repeat(horizons, runs),
        inserted=run % 2 == 0,
        score=draw.standard_normal(len(run)),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audits.sqlite"


def test_scores_come_back_by_horizon_in_the_order_of_tiles(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        for tile in (2, 0, 1):
            assert record.add_tile(tile, block(tile))
    with Store.open(path, create=False) as store:
        record = store.audit("housing")
        assert record.finished_tiles() == {0, 1, 2}
        assert record.horizons() == (125, 250)
        for horizon in (125, 250, None):
            scores = record.scores(horizon)
            assert scores.run.tolist() == list(range(12))
            expected = np.concatenate([block(t).scores(horizon or 250).score for t in range(3)])
            assert scores.score.tobytes() == expected.tobytes()
            assert scores.inserted.tolist() == [True, False] * 6


def test_the_same_command_resumes(path: Path) -> None:
    with Store.open(path) as store:
        store.begin("housing", CONFIGURATION, VERSIONS).add_tile(0, block(0))
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS | {"torch": "2.14.0"})
        assert record.finished_tiles() == {0}
        assert [version["torch"] for version in record.versions] == ["2.13.0", "2.14.0"]
        assert len(store.audits()) == 1


def test_a_tile_twice_is_a_tile_once(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin(None, CONFIGURATION, VERSIONS)
        assert record.add_tile(0, block(0))
        assert not record.add_tile(0, block(0))
        assert len(record.scores()) == 4


def test_other_settings_and_another_name_are_other_audits(path: Path) -> None:
    with Store.open(path) as store:
        one = store.begin("housing", CONFIGURATION, VERSIONS)
        assert store.begin("housing", dict(reversed(CONFIGURATION.items())), VERSIONS) == one
        assert store.begin("housing", CONFIGURATION | {"seed": 1}, VERSIONS) != one
        assert store.begin(None, CONFIGURATION, VERSIONS) != one
        assert len(store.audits()) == 3


def test_a_finished_audit_is_not_continued(path: Path) -> None:
    with Store.open(path) as store:
        first = store.begin("housing", CONFIGURATION, VERSIONS)
        first.finish({})
        second = store.begin("housing", CONFIGURATION, VERSIONS)
        assert second.id != first.id
        assert store.audit("housing") == second  # the newest of this name


def test_the_runs_that_confirm_a_suspicion_are_kept_apart(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        record.add_tiles([(0, block(0))])
        assert record.add_tiles([(0, block(5)), (1, failure(3))], phase=1) == 2
        assert (record.finished_tiles(), record.finished_tiles(1)) == ({0}, {0, 1})
        assert record.scores().run.tolist() == [0, 1, 2, 3]
        assert record.scores(phase=1).run.tolist() == [20, 21, 22, 23]
        assert (record.failures(), record.failures(1)) == ((), (failure(3),))


def test_audits_are_found_by_name_identity_and_prefix(path: Path) -> None:
    with Store.open(path) as store:
        records = [store.begin(f"a{seed}", {"seed": seed}, VERSIONS) for seed in range(40)]
        assert store.audits() == tuple(records)
        assert store.audit("a7") == store.audit(records[7].id) == records[7]
        assert store.audit(records[7].id[:12]) == records[7]
        assert store.audit("a7").configuration["seed"] == 7
        common = next(r.id[0] for r in records if sum(o.id[0] == r.id[0] for o in records) > 1)
        with pytest.raises(StoreError, match=rf"'{common}' fits \d+ audits"):
            store.audit(common)
        for unknown in ("zzz", ""):
            with pytest.raises(StoreError, match=f"no audit '{unknown}' .* a0 "):
                store.audit(unknown)


def test_a_finished_audit_keeps_its_summary(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        assert (record.finished, record.summary) == (None, {})
        record.finish({"lower": [{"epsilon": 22.1}], "upper": "inf"})
        assert record.summary == {"lower": [{"epsilon": 22.1}], "upper": "inf"}
        assert record.finished is not None
        assert record.finished >= record.created
        record.annotate({"upper": 1.0})
        assert record.summary["upper"] == "inf"
        other = store.begin("other", CONFIGURATION, VERSIONS)
        with pytest.raises(InvalidInput, match="summary must be plain data"):
            other.finish({"scores": np.zeros(2)})


def test_an_audit_without_scores(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        assert len(record.scores()) == 0
        with pytest.raises(InvalidInput, match=r"one of the audit's \(none yet\), got 250"):
            record.scores(250)
        record.add_tile(0, block(0))
        with pytest.raises(InvalidInput, match=r"one of the audit's \(125, 250\), got 7"):
            record.scores(7)
        with pytest.raises(InvalidInput, match="index must be at least 0, got -1"):
            record.add_tile(-1, block(0))
        with pytest.raises(InvalidInput, match="name must be text that is not blank"):
            store.begin(" ", CONFIGURATION, VERSIONS)


def test_a_full_disk_loses_nothing_that_was_committed(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        record.add_tile(0, block(0))
        ((pages,),) = store.rows("PRAGMA page_count")
        store.rows(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StoreError, match=r"no space left .*free some; nothing that was comm"):
            record.add_tile(1, block(1, runs=50_000))
        assert record.finished_tiles() == {0}
        store.rows("PRAGMA max_page_count = 1000000")
        assert record.add_tile(1, block(1, runs=50_000))  # the same store goes on
    with Store.open(path) as store:
        assert store.audit("housing").finished_tiles() == {0, 1}


def test_a_store_that_is_not_writable_can_still_be_read(path: Path) -> None:
    with Store.open(path) as store:
        store.begin("housing", CONFIGURATION, VERSIONS).add_tile(0, block(0))
    with Store.open(path) as store:
        # Permission bits do not bind root, who runs tests in containers; this binds everybody.
        store.rows("PRAGMA query_only = ON")
        record = store.audit("housing")
        assert len(record.scores()) == 4
        with pytest.raises(StoreError, match="is not writable"):
            record.add_tile(1, block(1))


def test_places_where_no_store_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="folder does not exist"):
        Store.open(tmp_path / "file" / "audits.sqlite")
    with pytest.raises(StoreError, match="cannot open the store"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="no store at"):
        Store.open(tmp_path / "none.sqlite", create=False)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_files_that_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("score,inserted\n" * 100)
    with pytest.raises(StoreError, match="is not a dpaudit store"):
        Store.open(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE accounts (name)")
    other.close()
    with pytest.raises(StoreError, match="database of another program"):
        Store.open(tmp_path / "other")


def test_a_store_from_the_future(path: Path) -> None:
    Store.open(path).close()
    future = sqlite3.connect(path)
    future.execute("PRAGMA user_version = 99")
    future.close()
    with pytest.raises(StoreError, match=r"newer dpaudit .schema 99.*upgrade"):
        Store.open(path)


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()  # what a kill between creating the file and laying out the tables leaves
    with Store.open(path) as store:
        assert store.audits() == ()


@pytest.mark.parametrize("kind", ["empty", "bare", "text", "other"])
def test_a_file_that_is_no_store_is_refused_and_left_alone(path: Path, kind: str) -> None:
    """A reader makes no store, not even in a file that has room for one."""
    if kind == "text":
        path.write_text("score,inserted\n" * 100)
    elif kind == "empty":
        path.touch()
    else:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE accounts (name)")
        if kind == "bare":  # a database without a table
            other.execute("DROP TABLE accounts")
        other.commit()
        other.close()
    before = path.read_bytes()
    words = "the file is empty" if kind in ("empty", "bare") else "not a dpaudit store"
    with pytest.raises(StoreError, match=words):
        Store.open(path, create=False)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_busy_store_is_waited_for_and_then_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpaudit.scores.store._WAIT_SECONDS", 0.05)
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"another process kept the store .* busy"):
            record.add_tile(0, block(0))
        other.execute("ROLLBACK")
        other.close()
        assert record.add_tile(0, block(0))


def test_threads_share_a_store(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        with ThreadPoolExecutor(4) as pool:
            added = list(
                pool.map(lambda tile: record.add_tile(tile % 20, block(tile % 20)), range(40))
            )
        assert sum(added) == 20
        assert record.scores().run.tolist() == list(range(80))


def test_a_closed_store_says_so(path: Path) -> None:
    store = Store.open(path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.audits()


def test_many_canaries_are_small_and_quick(path: Path) -> None:
    canaries, horizons = 100_000, (50, 100, 150, 200, 250)
    rows = canaries * len(horizons)
    draw = np.random.default_rng(0)
    tile = ScoreBlock(
        run=np.zeros(rows, dtype=np.int64),
        canary=np.tile(np.arange(canaries), len(horizons)),
        horizon=np.repeat(horizons, canaries),
        inserted=np.tile(draw.random(canaries) < 0.5, len(horizons)),
        score=draw.standard_normal(rows, dtype=np.float32),
    )
    with Store.open(path) as store:
        record = store.begin("many", CONFIGURATION, VERSIONS)
        record.add_tile(0, tile)
        scores = record.scores(100)
    assert scores.score.tobytes() == tile.scores(100).score.tobytes()
    assert path.stat().st_size < 4.5 * rows  # four bytes a score, and little else


def failure(run: int) -> Failure:
    return Failure(run=run, inserted=1, canaries=1, error="KeyError: 'x'", traceback="line 1\n")


def test_failed_runs_are_finished_tiles_without_scores(path: Path) -> None:
    with Store.open(path) as store:
        record = store.begin("mine", CONFIGURATION, VERSIONS)
        assert record.add_tiles([(0, block(0)), (1, failure(1))]) == 2
        assert record.add_tiles([(1, failure(1)), (2, block(2))]) == 1
        other = store.begin("other", CONFIGURATION, VERSIONS)
        assert other.failures() == ()
    with Store.open(path) as store:
        record = store.audit("mine")
        assert record.finished_tiles() == {0, 1, 2}
        assert record.failures() == (failure(1),)
        assert len(record.scores()) == 8


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_of_an_earlier_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    Store.open(path).close()
    old = sqlite3.connect(path)
    old.execute(f"PRAGMA user_version = {version}")
    old.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"dpaudit 0\.2 or earlier: read it with that version"):
        Store.open(path)
    assert path.read_bytes() == before


def test_the_spelling_of_settings_does_not_matter() -> None:
    one = {"clip_norm": 1.0, "steps": 250, "horizons": (10, 20), "deep": {"b": True, "a": None}}
    two = {
        "deep": {"a": None, "b": True},
        "horizons": [10.0, np.int64(20)],
        "steps": np.int32(250),
        "clip_norm": np.float32(1),
    }
    assert canonical_json(one) == canonical_json(two)


def test_different_settings_are_different_text() -> None:
    variants = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": 1.5}, {"a": None}, {"a": [1]}, {"b": 1}]
    assert len({canonical_json(variant) for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"rate": math.nan}, r"configuration\.rate must be finite, got nan"),
        ({"a": {"b": [1, math.inf]}}, r"configuration\.a\.b\[1\] must be finite"),
        ({"a": {1: 2}}, "text as keys, got 1"),
        ({"model": object()}, r"configuration\.model must be text, .* got a object"),
        ({"weights": np.zeros(3)}, "got a ndarray"),
        ({"raw": b"x"}, "got a bytes"),
    ],
)
def test_what_is_no_setting(configuration: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        canonical_json(configuration)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_was_deleted_or_replaced_is_named(path: Path, replaced: bool) -> None:
    with Store.open(path) as store:
        record = store.begin("housing", CONFIGURATION, VERSIONS)
        path.unlink()
        if replaced:
            Store.open(path).close()
        with pytest.raises(StoreError, match="was deleted or replaced"):
            record.add_tile(0, block(0))


def test_a_new_audit_reads_no_finished_one(path: Path) -> None:
    with Store.open(path) as store:
        for name in ("housing", None, "housing"):
            store.begin(name, CONFIGURATION, VERSIONS).finish({})
        unfinished = store.begin("housing", CONFIGURATION, VERSIONS)
        assert store.named("housing", unfinished=True) == (unfinished,)
        assert store.named("housing")[0].id == unfinished.id
        assert len(store.named("housing")) == 3
        assert len(store.named(None)) == 1
