"""A Ray cluster of several nodes on this machine: whatever dies, the scores stay the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.errors import InvalidInput, StoreError
from dpaudit.executors import EXECUTORS, Lost, Player
from dpaudit.scores import ScoreBlock, Store
from dpaudit.testing import check_executor

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

# Ray warns about its own future; sockets of the cluster are closed by its processes.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RayTasks: Any = EXECUTORS["ray"]


class Faulty(Player):
    """Gives 8 scores for a tile. Tile 2 misbehaves as often as ``times``."""

    def __init__(self, fault: str, folder: Path, times: int = 1, ballast: int = 0) -> None:
        self.fault, self.folder, self.times = fault, str(folder), times
        self.ballast = np.zeros(ballast, dtype=np.uint8)

    def open(self):
        def play(tile: int, notify: Any) -> ScoreBlock:
            import os

            if tile == 2:
                (Path(self.folder) / f"try-{time.monotonic_ns()}").write_text(
                    ray.get_runtime_context().get_node_id()
                )
                if len(list(Path(self.folder).glob("try-*"))) <= self.times:
                    if self.fault == "killed":
                        os.kill(os.getpid(), signal.SIGKILL)
                    elif self.fault == "hangs":
                        time.sleep(1000)
            return block(tile)

        return play


def block(tile: int) -> ScoreBlock:
    run = np.arange(8) + 8 * tile
    return ScoreBlock(
        run=run,
        canary=np.zeros_like(run),
        horizon=np.full(8, 250),
        inserted=run % 2 == 0,
        score=np.random.default_rng(tile).standard_normal(8),
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    made = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 80 * 2**20,
            "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 2},
        },
    )
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


def played(player: Player, **settings: Any) -> tuple[dict[int, Any], list[str], Any]:
    notices: list[str] = []
    executor = RayTasks(address="auto", **settings)
    return dict(executor.play(player, range(6), notices.append)), notices, executor.status


def assert_same(found: dict[int, Any], tiles: Any = range(6)) -> None:
    assert sorted(found) == list(tiles)
    for tile, one in found.items():
        assert one.score.tobytes() == block(tile).score.tobytes()


def test_contract(cluster: Any) -> None:
    check_executor(RayTasks(address="auto"))


@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_a_worker_that_dies_or_hangs(cluster: Any, tmp_path: Path, fault: str) -> None:
    found, notices, status = played(Faulty(fault, tmp_path), timeout=2.0)
    assert_same(found)
    assert status.retries == 1
    assert "tile 2" in notices[0]


def test_a_poisoned_tile_is_lost_after_three_attempts(cluster: Any, tmp_path: Path) -> None:
    found, _, _ = played(Faulty("killed", tmp_path, 99))
    lost = found.pop(2)
    assert isinstance(lost, Lost)
    assert lost.attempts == 3 == len(list(tmp_path.glob("try-*")))
    assert_same(found, [0, 1, 3, 4, 5])


def is_alive(node: Any) -> bool:
    return any(known["Alive"] for known in ray.nodes() if known["NodeID"] == node.node_id)


def test_a_node_that_is_killed_in_the_middle_of_a_tile(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, resources={"doomed": 8})
    player = Faulty("hangs", tmp_path)
    executor = RayTasks(address="auto")
    executor._needs["doomed"] = 1  # the first attempt runs on the new node
    task_options = executor._options

    def options() -> dict[str, Any]:
        return {**task_options(), "resources": {"doomed": 1}}

    executor._options = options
    notices: list[str] = []
    found: dict[int, Any] = {}
    tiles = executor.play(player, range(6), notices.append)
    for tile, result in tiles:
        found[tile] = result
        if len(found) == 1:
            while not list(tmp_path.glob("try-*")):
                time.sleep(0.05)
            other = cluster.add_node(num_cpus=1, resources={"doomed": 8})
            cluster.remove_node(node, allow_graceful=False)
            while is_alive(node):  # the cluster itself notices it only after a while
                time.sleep(0.05)
    assert_same(found)
    assert executor.status.retries == 1
    assert executor.status.lost_nodes == 1
    cluster.remove_node(other, allow_graceful=False)


def test_a_game_larger_than_the_object_store(cluster: Any, tmp_path: Path) -> None:
    found, _, _ = played(Faulty("none", tmp_path, 0, ballast=100 * 2**20))
    assert_same(found)


def test_resources_that_no_node_has_are_refused(cluster: Any, tmp_path: Path) -> None:
    for settings in ({"cpus_per_tile": 64}, {"gpus_per_tile": 1}, {"accelerator": "H100"}):
        with pytest.raises(InvalidInput, match="no machine of the Ray cluster"):
            played(Faulty("none", tmp_path), **settings)


def test_a_full_disk_on_the_driver_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    player, path = Faulty("none", tmp_path, 0), tmp_path / "audits.sqlite"
    with Store.open(path) as store:
        record = store.begin("a", {"runs": 48}, {})
        ((pages,),) = record.database.rows("PRAGMA page_count")
        record.database.rows(f"PRAGMA max_page_count = {pages}")

        def play_missing() -> None:
            left = sorted(set(range(400)) - record.finished_tiles())
            for tile, result in RayTasks(address="auto").play(player, left, print):
                record.add_tile(tile, result)

        with pytest.raises(StoreError, match="no space left"):
            play_missing()
        assert 0 < len(record.finished_tiles()) < 400
        record.database.rows("PRAGMA max_page_count = 100000")
        play_missing()
        expected = np.concatenate([block(tile).score for tile in range(400)])
        assert record.scores().score.tobytes() == expected.tobytes()


DRIVER = """
import sys, time
sys.path.insert(0, {tests!r})
import ray
from dpaudit.executors import EXECUTORS
from dpaudit.scores import Store
from test_ray import Faulty

ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
with Store.open({store!r}) as store:
    record = store.begin("a", {{"runs": 48}}, {{}})
    left = [tile for tile in range(60) if tile not in record.finished_tiles()]
    for tile, result in EXECUTORS["ray"]().play(Faulty("none", {folder!r}, 0), left, print):
        record.add_tile(tile, result)
        time.sleep(0.05)
"""


def test_the_driver_is_killed_and_started_again(cluster: Any, tmp_path: Path) -> None:
    store = tmp_path / "audits.sqlite"
    script = tmp_path / "driver.py"
    settings = {
        "tests": str(Path(__file__).parent), "address": cluster.address, "store": str(store),
        "folder": str(tmp_path),
    }  # fmt: skip
    script.write_text(DRIVER.format(**settings))
    errors = (tmp_path / "errors").open("w")
    driver = subprocess.Popen([sys.executable, str(script)], stderr=errors)
    kept: frozenset[int] = frozenset()
    deadline = time.monotonic() + 60
    while len(kept) < 5:
        assert driver.poll() is None, (tmp_path / "errors").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if store.exists() and store.stat().st_size:
            with Store.open(store) as opened:
                kept = opened.audits()[0].finished_tiles() if opened.audits() else kept
    driver.kill()
    driver.wait()
    assert len(kept) < 60
    again = subprocess.run([sys.executable, str(script)], check=False, capture_output=True)
    assert again.returncode == 0, again.stderr
    with Store.open(store) as opened:
        scores = opened.audits()[0].scores()
    expected = np.concatenate([block(tile).score for tile in range(60)])
    assert scores.score.tobytes() == expected.tobytes()


def test_a_game_gives_the_bits_of_the_local_executor(cluster: Any) -> None:
    from dpaudit.adversaries import RandomDimension
    from dpaudit.engine import Speed
    from dpaudit.games import Game, play, prepare
    from dpaudit.mechanisms.dpsgd import Insertion
    from dpaudit.testing import easy_training

    mechanism, adversary = easy_training(), RandomDimension()
    canaries = adversary.craft(mechanism, Insertion(), canaries=1, seed=0)
    game = Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=40)
    prepared = prepare(game, Speed(device="cpu", compile=False, tile_size=10, workers=1))
    alone = dict(play(prepared))
    together = dict(play(prepared, executor=RayTasks(address="auto")))
    for tile, one in alone.items():
        assert one.score.tobytes() == together[tile].score.tobytes()
