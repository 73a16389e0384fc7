"""Workers that die, hang or misbehave: results stay those of one process, and nothing is left."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.executors import LocalProcesses, Lost, Player

# Another process imports these by name, so they must lie in a file of their own.
PLAYERS = """
import os, random, signal, subprocess, sys, threading, time
from pathlib import Path
from dpaudit.executors import Player


class Faulty(Player):
    def __init__(self, fault, folder, times=1):
        self.fault, self.folder, self.times = fault, str(folder), times

    def open(self):
        if self.fault == "dies in open":
            os._exit(4)
        return self.play

    def play(self, tile, notify):
        if tile == 2:
            mark = Path(self.folder) / f"tries-{time.monotonic_ns()}"
            mark.touch()
            if len(list(Path(self.folder).glob("tries-*"))) <= self.times:
                getattr(self, self.fault)()
        return tile, random.Random(tile).random()

    def nothing(self):
        pass

    def starts_a_daemon_and_hangs(self):
        # As a daemon: a session of its own, and a parent that has ended.
        start = "import subprocess, sys; print(subprocess.Popen(['sleep', '1000'], " \
            "start_new_session=True, stdout=subprocess.DEVNULL).pid)"
        daemon = subprocess.run(
            [sys.executable, "-c", start], start_new_session=True, stdout=subprocess.PIPE
        )
        Path(self.folder, "child").write_bytes(daemon.stdout)
        time.sleep(1000)

    def killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def segfault(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def exits(self):
        os._exit(0)

    def hangs(self):
        time.sleep(1000)

    def forks_and_dies(self):
        if os.fork() == 0:
            time.sleep(1000)
        os.kill(os.getpid(), signal.SIGKILL)

    def starts_and_hangs(self):
        child = subprocess.Popen(["sleep", "1000"])
        (Path(self.folder) / "child").write_text(str(child.pid))
        child.wait()

    def reads(self):
        assert sys.stdin.read() == ""

    def prints(self):
        print("printed by the player", flush=True)
        os.write(1, b"written by the player")

    def unpicklable(self):
        raise Unpicklable(threading.Lock())

    def local_result(self):
        raise ZeroDivisionError


class Unpicklable(Exception):
    pass


class Visible(Player):
    def open(self):
        def play(tile, notify):
            time.sleep(0.3)
            return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS")
        return play


class Local(Player):
    def open(self):
        return lambda tile, notify: (lambda: tile)
"""


@pytest.fixture
def players(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "faulty_players.py").write_text(PLAYERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "faulty_players", raising=False)
    return importlib.import_module("faulty_players")


def played(player: Player, **settings: Any) -> tuple[dict[int, Any], list[str]]:
    notices: list[str] = []
    executor = LocalProcesses(**{"workers": 2, **settings})
    return dict(executor.play(player, range(6), notices.append)), notices


def expected(players: ModuleType, tmp_path: Path) -> dict[int, Any]:
    one = players.Faulty("nothing", tmp_path, 0).open()
    return {tile: one(tile, print) for tile in range(6)}


@pytest.mark.parametrize("fault", ["killed", "segfault", "exits", "hangs", "forks_and_dies"])
def test_a_worker_that_dies_or_hangs_is_replaced(players, tmp_path, fault):
    whole = expected(players, tmp_path)
    for mark in tmp_path.glob("tries-*"):
        mark.unlink()
    found, notices = played(players.Faulty(fault, tmp_path), timeout=1.0)
    assert found == whole
    assert len(notices) == 1
    assert "tile 2" in notices[0]


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_tile_that_kills_every_worker_is_lost_and_the_others_kept(players, tmp_path, attempts):
    found, _ = played(players.Faulty("killed", tmp_path, 99), attempts=attempts)
    lost = found.pop(2)
    assert isinstance(lost, Lost)
    assert lost.attempts == attempts == len(list(tmp_path.glob("tries-*")))
    assert "SIGKILL" in lost.reason
    assert sorted(found) == [0, 1, 3, 4, 5]


def test_a_time_limit_kills_what_the_worker_started(players, tmp_path):
    found, _ = played(players.Faulty("starts_and_hangs", tmp_path, 99), timeout=0.5, attempts=1)
    assert "0.5 s" in found[2].reason
    assert_gone(int((tmp_path / "child").read_text()))


def test_standard_input_is_empty(players, tmp_path):
    found, _ = played(players.Faulty("reads", tmp_path), timeout=20)
    assert not isinstance(found[2], Lost)


def test_what_a_player_prints_goes_to_standard_error(players, tmp_path, capfd):
    played(players.Faulty("prints", tmp_path))
    out, err = capfd.readouterr()
    assert out == ""
    assert "printed by the player" in err
    assert "written by the player" in err


def test_an_error_that_cannot_be_pickled_keeps_its_text(players, tmp_path):
    with pytest.raises(DpauditError, match="in a worker process: Unpicklable"):
        played(players.Faulty("unpicklable", tmp_path))


def test_an_error_has_the_traceback_of_the_worker(players, tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        played(players.Faulty("local_result", tmp_path))
    assert "in local_result" in "".join(caught.value.__notes__)


def test_a_result_that_cannot_be_pickled_is_an_error(players):
    with pytest.raises(Exception, match="pickle"):
        played(players.Local())


def test_workers_that_cannot_start_are_an_error_and_not_a_loop(players, tmp_path):
    with pytest.raises(DpauditError, match="exit code 4"):
        played(players.Faulty("dies in open", tmp_path))


def test_a_player_that_cannot_be_pickled_is_refused_at_once():
    class Here(Player):
        def open(self):
            return lambda tile, notify: tile

    with pytest.raises(InvalidInput, match="workers=1"):
        LocalProcesses(workers=2).play(Here(), [0], print)


def test_a_module_that_workers_cannot_import_is_an_error(players, tmp_path, monkeypatch):
    player = players.Faulty("nothing", tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(tmp_path)])
    with pytest.raises(InvalidInput, match=r"faulty_players.*workers=1"):
        played(player)


def test_files_of_the_working_directory_are_not_imported(players, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("random", "pickle", "numpy", "dpaudit", "threading"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(folder)
    found, notices = played(players.Faulty("nothing", tmp_path))
    assert len(found) == 6
    assert not notices


def test_the_standard_library_of_the_audit_is_that_of_its_workers(players, tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("raise SystemExit('imported')")  # in sys.path, and first
    assert len(played(players.Faulty("nothing", tmp_path))[0]) == 6


def test_each_worker_sees_one_gpu(players):
    settings = {"environment": {"OMP_NUM_THREADS": "1"}, "gpus": ("3", "GPU-5"), "workers": 3}
    found, _ = played(players.Visible(), **settings)
    assert set(found.values()) == {("3", "1"), ("GPU-5", "1")}


SCRIPT = """
import os, sys, time
from pathlib import Path
from dpaudit.executors import LocalProcesses
sys.path.insert(0, sys.argv[1])
from faulty_players import Faulty

if __name__ == "__main__":
    player = Faulty("starts_and_hangs", sys.argv[1], 99)
    list(LocalProcesses(workers=2).play(player, range(6), print))
"""


@pytest.mark.parametrize("fault", ["starts_and_hangs", "starts_a_daemon_and_hangs"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_and_what_they_started_end_with_the_audit(players, tmp_path, sent, fault):
    if "daemon" in fault and sys.platform != "linux":
        pytest.skip("processes of other groups are found on Linux only")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("starts_and_hangs", fault))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stderr=subprocess.DEVNULL
    )
    child = tmp_path / "child"
    wait_until(lambda: child.exists() and child.read_text())
    process.send_signal(sent)
    process.wait(timeout=10)
    assert_gone(int(child.read_text()))


def assert_gone(pid: int) -> None:
    wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def wait_until(true) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
