"""Real processes: killed in the middle of a write, and two at once on one store."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np

from dpaudit.scores import Store

WRITER = textwrap.dedent(
    """
    import sys
    import numpy as np
    from dpaudit.scores import ScoreBlock, Store

    def block(tile):
        run = np.arange(2000) + 2000 * tile
        return ScoreBlock(run=run, canary=0 * run, horizon=0 * run + 250, inserted=run % 2 == 0,
                          score=np.random.default_rng(tile).standard_normal(2000))

    path, *tiles = sys.argv[1:]
    with Store.open(path) as store:
        record = store.begin("killed", {"seed": 0}, {"python": "3"})
        for tile in map(int, tiles):
            if tile not in record.finished_tiles():
                record.add_tile(tile, block(tile))
            print(tile, flush=True)
    """
)


def start(path: Path, tiles: range) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), *map(str, tiles)],
        stdout=subprocess.PIPE,
        text=True,
    )


def check(path: Path, committed: set[int]) -> set[int]:
    with Store.open(path) as store:  # opening rolls a half-written tile back
        record = store.audit("killed")
        tiles = record.finished_tiles()
        assert committed <= tiles
        scores = record.scores()
    assert len(scores) == 2000 * len(tiles)
    expected = [np.random.default_rng(tile).standard_normal(2000) for tile in sorted(tiles)]
    assert scores.score.tobytes() == np.concatenate(expected).tobytes()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    return set(tiles)


def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path, committed, chance = tmp_path / "audits.sqlite", set[int](), random.Random(0)
    for _ in range(6):
        before = len(committed)
        process = start(path, range(10_000))
        assert process.stdout is not None
        for line in process.stdout:
            committed.add(int(line))
            if len(committed) >= before + 5:
                time.sleep(chance.random() * 0.03)  # so that death comes at any point of a write
                process.send_signal(signal.SIGKILL)
                break
        committed |= {int(line) for line in process.stdout.read().split("\n")[:-1]}
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        committed = check(path, committed)
    assert len(committed) >= 30


def test_two_processes_on_one_audit(tmp_path: Path) -> None:
    path, tiles = tmp_path / "audits.sqlite", range(25)
    writers = [start(path, tiles), start(path, tiles[::-1])]
    for writer in writers:
        output, _ = writer.communicate(timeout=300)
        assert writer.returncode == 0
        assert len(output.split()) == len(tiles)
    assert check(path, set(tiles)) == set(tiles)
