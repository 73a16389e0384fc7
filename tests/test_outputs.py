"""The one rule for outputs: no file of the user's is lost, and everything is checked before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit._outputs import MARKER, ROOM, check_outputs, is_ours, write_text, write_whole
from dpaudit.errors import InvalidInput
from dpaudit.scores import Scores, Store, read_scores, write_scores


def train(canary: object, inserted: object, seed: int) -> float:
    return 3.0 * inserted + float(np.random.default_rng(seed).normal())  # type: ignore[operator]


SCORES = Scores.from_samples([3.0, 2.0], [0.1, 0.3])


def test_a_file_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    own = tmp_path / "own.xml"
    own.write_text("precious")
    with pytest.raises(InvalidInput, match=r"was not written by dpaudit.*--overwrite"):
        check_outputs({"--junit": own})
    check_outputs({"--junit": own}, overwrite=True)
    assert own.read_text() == "precious"


def test_files_of_dpaudit_and_empty_ones_are_replaced(tmp_path: Path) -> None:
    for name in ("scores.csv", "scores.parquet"):
        path = tmp_path / name
        path.touch()
        write_scores(SCORES, path)
        assert is_ours(path)
        write_scores(SCORES, path)
        assert len(read_scores(path)) == len(SCORES)


def test_a_table_with_the_columns_of_dpaudit_is_the_users(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("score,inserted,run,canary\n1.5,1,0,0\n")
    with pytest.raises(InvalidInput, match="not written by dpaudit"):
        write_scores(SCORES, path)
    write_scores(SCORES, path, overwrite=True)
    write_scores(SCORES, path)


def test_receipts_and_plans_replace_no_file_of_the_users(tmp_path: Path) -> None:
    own, store = tmp_path / "own.json", tmp_path / "a.sqlite"
    own.write_text("{}")
    plan = dpaudit.receipts.register(train, claim=dpaudit.Claim.from_mu(1.0), runs=4)
    dpaudit.audit(train, claim=dpaudit.Claim.from_mu(1.0), runs=40, store=store)
    with Store.open(store) as opened:
        receipt = dpaudit.receipts.receipt_of(opened.audits()[0])
    for made in (plan, receipt):
        for path in (own, store):
            with pytest.raises(InvalidInput, match="path"):
                made.write(path)
        made.write(tmp_path / "new.json")
        made.write(tmp_path / "new.json")
    assert own.read_text() == "{}"


def test_a_table_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for name, write in (("own.parquet", "to_parquet"), ("own.csv", "to_csv")):
        path = tmp_path / name
        getattr(pandas.DataFrame({"score": [1.0], "inserted": [1]}), write)(path)
        before = path.read_bytes()
        with pytest.raises(InvalidInput, match="overwrite=True"):
            write_scores(SCORES, path)
        assert path.read_bytes() == before
        write_scores(SCORES, path, overwrite=True)
        assert len(read_scores(path)) == len(SCORES)


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_input_is_replaced_by_any_of_its_names(tmp_path: Path, overwrite: bool) -> None:
    store, link, hard = tmp_path / "a.sqlite", tmp_path / "link", tmp_path / "hard"
    Store.open(store).close()
    link.symlink_to(store)
    hard.hardlink_to(store)
    names = (store, link, hard, tmp_path / "b" / ".." / "a.sqlite", f"{store}-journal")
    (tmp_path / "b").mkdir()
    for name in names:
        with pytest.raises(InvalidInput, match="--out"):
            check_outputs({"--out": name}, inputs={"--store": store}, overwrite=overwrite)


def test_a_store_is_never_replaced(tmp_path: Path) -> None:
    Store.open(tmp_path / "other.sqlite").close()
    with pytest.raises(InvalidInput, match="is a store"):
        check_outputs({"--out": tmp_path / "other.sqlite"}, overwrite=True)


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--sarif.*--junit"):
        check_outputs({"--junit": tmp_path / "a", "--sarif": tmp_path / "b" / ".." / "a"})
    with pytest.raises(InvalidInput, match="--store"):  # the store does not exist yet
        check_outputs({"--junit": tmp_path / "a"}, inputs={"--store": tmp_path / "a"})
    check_outputs({"--junit": "/dev/stdout", "--sarif": "/dev/stdout", "--out": None})


@pytest.mark.parametrize(
    "where", ["no/folder/a", "", ".", "loop", "a\0b", "a" * 5_000, "/proc/a", "/sys/a"]
)
def test_a_place_where_nothing_can_be_written_is_refused(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidInput, match="--out must be"):
        check_outputs({"--out": where})
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_full_disk_is_noticed_before(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from dpaudit._outputs import check_outputs\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM // 2}, {ROOM // 2}))\n"
        "check_outputs({'--out': sys.argv[1]})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "is full; choose another folder" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_draft_follows_no_link_and_leaves_nothing(tmp_path: Path) -> None:
    """Whatever another user puts into a shared folder, only the file itself is written."""
    target, elsewhere = tmp_path / "page.html", tmp_path / "elsewhere"
    seen: list[set[str]] = []
    for _ in range(2):
        write_whole(target, lambda stream: seen.append({one.name for one in tmp_path.iterdir()}))
    drafts = {name for names in seen for name in names if name.startswith(".dpaudit-")}
    assert len(drafts) == 2  # unpredictable
    for name in drafts:
        (tmp_path / name).symlink_to(elsewhere)
    write_text(target, "content")
    assert target.read_text() == "content"
    assert not elsewhere.exists()


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_text(target, "before")

    def fail(stream: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_whole(target, fail)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch()
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "content")
    assert link.is_symlink()
    assert target.read_text() == "content"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_pipe_that_nobody_reads_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        write_text(tmp_path / "pipe", "text")


def test_standard_output_in_a_file_keeps_what_was_printed(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from dpaudit._outputs import write_text\n"
        "print('verdict', flush=True); write_text(Path('/dev/stdout'), 'file')"
    )
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "verdict\nfile"


def test_the_marker_is_in_every_kind_of_file(tmp_path: Path) -> None:
    from dpaudit.report.ci import Outcome, to_junit, to_sarif

    outcome = Outcome(name="a", level="failed", verdict="violation", message="p = 0.01")
    for text in (to_junit([outcome]), to_sarif([outcome])):
        assert MARKER in text
        write_text(tmp_path / "file", text)
        assert is_ours(tmp_path / "file")
