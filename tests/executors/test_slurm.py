"""SLURM arrays, played on this machine by submitit's local and debug executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit import audit
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.executors import EXECUTORS, Lost, Player
from dpaudit.executors.slurm_array import _Tiles, collect_tiles
from dpaudit.testing import check_executor
from dpaudit.testing.executors import Squares

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("submitit") is None, reason="needs submitit"),
]

SlurmArray: Any = EXECUTORS["slurm"]


class Faulty(Player):
    """Squares tiles; tile 2 misbehaves as often as ``times``."""

    def __init__(self, fault: str, folder: Path, times: int = 1) -> None:
        self.fault, self.folder, self.times = fault, str(folder), times

    def open(self):
        def play(tile: int, notify: Any) -> int:
            if tile == 2:
                (Path(self.folder) / f"try-{time.monotonic_ns()}").touch()
                if len(list(Path(self.folder).glob("try-*"))) <= self.times:
                    if self.fault == "killed":
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(1000)
            return tile**2

        return play


def slurm(folder: Path, **settings: Any) -> Any:
    return SlurmArray(**{"folder": folder / "a", "cluster": "local", "poll": 0.1, **settings})


def test_contract_with_the_debug_executor(tmp_path: Path) -> None:
    class Fresh(type(slurm(tmp_path)).__mro__[1]):  # each call has a folder of its own
        def play(self, player, tiles, notify):
            inner = slurm(tmp_path / str(time.monotonic_ns()), cluster="debug", tiles_per_job=2)
            return inner.play(player, tiles, notify)

    check_executor(Fresh())


def noisy(canary: object, inserted: bool, seed: int) -> float:
    return inserted + np.random.default_rng(seed).normal()


def test_a_training_function_has_the_same_scores_in_jobs(tmp_path: Path) -> None:
    """The result of the first job holds tiles, and is read from a file."""
    asked: dict[str, Any] = {"claim": Claim.from_mu(1.0), "runs": 20}
    executor = slurm(tmp_path, cluster="debug", tiles_per_job=20)
    in_jobs, here = audit(noisy, executor=executor, **asked), audit(noisy, **asked)
    assert np.array_equal(in_jobs.scores.score, here.scores.score)
    assert in_jobs.adversary == here.adversary == "score"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_a_job_that_dies_is_submitted_again(tmp_path: Path, fault: str) -> None:
    executor = slurm(tmp_path, tiles_per_job=3, timeout=3.0)
    notices: list[str] = []
    found = dict(executor.play(Faulty(fault, tmp_path), range(6), notices.append))
    assert found == {tile: tile**2 for tile in range(6)}
    assert executor.status.retries == 1
    assert len(notices) == 1


@pytest.mark.slow
def test_a_poisoned_tile_is_lost_and_the_others_kept(tmp_path: Path) -> None:
    executor = slurm(tmp_path, attempts=2)
    found = dict(executor.play(Faulty("killed", tmp_path, 99), [1, 2, 3], print))
    assert isinstance(found[2], Lost)
    assert found[2].attempts == 2 == len(list(tmp_path.glob("try-*")))
    assert (found[1], found[3]) == (1, 9)


def test_results_survive_the_process_that_asked_for_them(tmp_path: Path) -> None:
    executor = slurm(tmp_path, cluster="debug")
    executor.label = "0123456789abcdef"
    tiles = executor.play(Squares(), [3, 4, 5], print)
    assert next(tiles)[1] in (9, 16, 25)
    tiles.close()
    folder = tmp_path / "a" / "0123456789abcdef"
    assert dict(collect_tiles(folder)) == {3: 9, 4: 16, 5: 25}
    again = slurm(tmp_path, cluster="slurm")  # nothing is submitted: there is no SLURM here
    again.label = executor.label
    assert dict(again.play(Squares(), [3, 4, 5], print)) == {3: 9, 4: 16, 5: 25}


def test_a_requeued_job_plays_only_what_is_missing(tmp_path: Path) -> None:
    executor = slurm(tmp_path, cluster="debug")
    list(executor.play(Squares(), [3], print))
    folder = tmp_path / "a" / "tiles"
    before = (folder / "000000003.tile").stat().st_mtime_ns
    arguments = (str(folder), [3, 4], None)
    again = _Tiles().checkpoint(*arguments)
    assert again.args == arguments
    again.function(*again.args)
    assert (folder / "000000003.tile").stat().st_mtime_ns == before
    assert dict(collect_tiles(folder)) == {3: 9, 4: 16}


def test_folders_that_others_may_write_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "tiles"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(InvalidInput, match="chmod 700"):
        next(slurm(tmp_path, cluster="debug").play(Squares(), [1], print))
    with pytest.raises(InvalidInput, match="not a folder of tiles"):
        list(collect_tiles(tmp_path))


def test_without_slurm_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="SLURM"):
        next(slurm(tmp_path, cluster="slurm").play(Squares(), [1], print))


def test_submitit_does_not_write_to_standard_output(tmp_path: Path) -> None:
    code = (
        "from dpaudit.executors import EXECUTORS; from dpaudit.testing.executors import Squares; "
        f"list(EXECUTORS['slurm'](folder={str(tmp_path)!r}, cluster='debug')"
        ".play(Squares(), [1], print))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ended.stdout == b""
