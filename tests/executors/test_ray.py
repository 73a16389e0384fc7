"""A Ray cluster of several nodes on this machine: whatever dies, the scores stay the same bits."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.adversaries import RandomDimension
from dpaudit.audits import audit
from dpaudit.audits.identity import sample_seed
from dpaudit.claims import Claim
from dpaudit.engine import Speed
from dpaudit.errors import DpauditError, InvalidInput, StoreError
from dpaudit.executors import EXECUTORS, Capacity, Lost, Player
from dpaudit.games import Game, executor_for, play, prepare
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import preset
from dpaudit.scores import ScoreBlock, Store
from dpaudit.testing import check_executor
from dpaudit.trainings.coins import training_seed

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

# Ray warns about its own future; sockets of the cluster are closed by its processes.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RayTasks: Any = EXECUTORS["ray"]

# Workers need not import this file, nor what it imports.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Faulty(Player):
    """Gives 8 scores for a tile. Tile 2, or every tile on one node, misbehaves ``times`` times."""

    def __init__(
        self, fault: str, folder: Path, times: int = 1, ballast: int = 0, node: str = ""
    ) -> None:
        self.fault, self.folder, self.times, self.node = fault, str(folder), times, node
        self.ballast = np.zeros(ballast, dtype=np.uint8)

    def open(self):
        def play(tile: int, notify: Any) -> ScoreBlock:
            import os

            here = ray.get_runtime_context().get_node_id()
            if self.node:
                time.sleep(0.1)  # or the other node plays everything
            if (here == self.node) if self.node else (tile == 2):
                (Path(self.folder) / f"try-{time.monotonic_ns()}").touch()
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
            "num_gpus": 1,  # Ray does not look whether there is one
            "include_dashboard": False,
            "object_store_memory": 80 * 2**20,
            "_system_config": {
                "health_check_period_ms": 500,
                "health_check_failure_threshold": 2,
                # A large object is written to the disk. By default Ray refuses this if 95 % of the
                # disk are in use, however many gigabytes are free.
                "local_fs_capacity_threshold": 1.0,
            },
        },
    )
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


def played(
    player: Player, tiles: Any = range(6), **settings: Any
) -> tuple[dict[int, Any], list[str], Any]:
    notices: list[str] = []
    executor = RayTasks(address="auto", **settings)
    return dict(executor.play(player, tiles, notices.append)), notices, executor.status


def assert_same(found: dict[int, Any], tiles: Any = range(6)) -> None:
    assert sorted(found) == list(tiles)
    for tile, one in found.items():
        assert one.score.tobytes() == block(tile).score.tobytes()


def test_contract(cluster: Any) -> None:
    check_executor(RayTasks(address="auto"))


@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_a_worker_that_dies_or_hangs(cluster: Any, tmp_path: Path, fault: str) -> None:
    found, notices, status = played(Faulty(fault, tmp_path), timeout=1.0)
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
    node = cluster.add_node(num_cpus=1)
    executor, found = RayTasks(address="auto"), dict[int, Any]()
    tiles = executor.play(Faulty("hangs", tmp_path, node=node.node_id), range(400), print)
    for tile, result in tiles:
        found[tile] = result
        if is_alive(node) and list(tmp_path.glob("try-*")):
            cluster.remove_node(node, allow_graceful=False)
            while is_alive(node):  # the cluster itself notices it only after a while
                time.sleep(0.05)
        if executor.status.retries and len(found) > 20:
            break
    tiles.close()
    for tile, one in found.items():
        assert one.score.tobytes() == block(tile).score.tobytes()
    assert executor.status.retries >= 1
    assert executor.status.lost_nodes == 1


def test_a_game_larger_than_the_object_store(cluster: Any, tmp_path: Path) -> None:
    found, _, _ = played(Faulty("none", tmp_path, 0, ballast=100 * 2**20))
    assert_same(found)


def test_a_full_object_store_names_the_remedy(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise ray.exceptions.OutOfDiskError("Local disk is full")

    monkeypatch.setattr(ray, "put", full)
    with pytest.raises(DpauditError, match=r"free space .* --object-store-memory.*disk is full"):
        played(Faulty("none", tmp_path))


def test_resources_that_no_node_has_are_refused(cluster: Any, tmp_path: Path) -> None:
    for settings in ({"cpus_per_tile": 64}, {"gpus_per_tile": 2}, {"accelerator": "H100"}):
        with pytest.raises(InvalidInput, match="no machine of the Ray cluster"):
            played(Faulty("none", tmp_path), **settings)


def test_a_full_disk_on_the_driver_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    player, path = Faulty("none", tmp_path, 0), tmp_path / "audits.sqlite"
    with Store.open(path) as store:
        record = store.begin("a", {"runs": 48}, {})
        ((pages,),) = record.store.rows("PRAGMA page_count")
        record.store.rows(f"PRAGMA max_page_count = {pages}")

        def play_missing() -> None:
            left = sorted(set(range(120)) - record.finished_tiles())
            for tile, result in RayTasks(address="auto").play(player, left, print):
                record.add_tile(tile, result)

        with pytest.raises(StoreError, match="no space left"):
            play_missing()
        assert 0 < len(record.finished_tiles()) < 120
        record.store.rows("PRAGMA max_page_count = 100000")
        play_missing()
        expected = np.concatenate([block(tile).score for tile in range(120)])
        assert record.scores().score.tobytes() == expected.tobytes()


DRIVER = """
import sys, time
import numpy as np
import ray
from dpaudit.executors import EXECUTORS, Player
from dpaudit.games import Game, executor_for, play, prepare
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import preset
from dpaudit.scores import ScoreBlock, Store

class Slow(Player):
    def open(self):
        def play(tile, notify):
            run = np.arange(8) + 8 * tile
            score = np.random.default_rng(tile).standard_normal(8)
            return ScoreBlock(run=run, canary=run * 0, horizon=run * 0 + 250,
                              inserted=run % 2 == 0, score=score)
        return play

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
with Store.open(sys.argv[2]) as store:
    record = store.begin("a", {"runs": 48}, {})
    for tile, result in EXECUTORS["ray"]().play(Slow(), range(60), print):
        record.add_tile(tile, result)
        time.sleep(0.05)
"""


def test_the_driver_is_killed_and_started_again(cluster: Any, tmp_path: Path) -> None:
    store = tmp_path / "audits.sqlite"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.address, str(store)], stderr=subprocess.PIPE
    )
    kept: frozenset[int] = frozenset()
    deadline = time.monotonic() + 60
    while len(kept) < 5:
        assert driver.poll() is None, driver.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if store.exists() and store.stat().st_size:
            with Store.open(store) as opened:
                kept = opened.audits()[0].finished_tiles() if opened.audits() else kept
    driver.kill()
    driver.communicate()
    with Store.open(store) as opened:
        record = opened.begin("a", {"runs": 48}, {})
        left = sorted(set(range(60)) - record.finished_tiles())
        assert 0 < len(left) < 60
        found, _, _ = played(Faulty("none", tmp_path, 0), left)
        record.add_tiles(list(found.items()))
        scores = record.scores()
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
    game = Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=8)
    prepared = prepare(game, Speed(device="cpu", compile=False, tile_size=4, workers=1))
    alone = dict(play(prepared))
    # One worker at a time: each imports torch.
    together = dict(play(prepared, executor=RayTasks(address="auto", cpus_per_tile=2)))
    for tile, one in alone.items():
        assert one.score.tobytes() == together[tile].score.tobytes()


class WhereGpu(Player):
    def open(self):
        def play(tile: int, notify: Any) -> tuple[list[int], float]:
            time.sleep(0.3)
            context = ray.get_runtime_context()
            return ray.get_gpu_ids(), context.get_assigned_resources()["GPU"]

        return play


def test_two_tiles_share_a_gpu(cluster: Any) -> None:
    half = RayTasks(address="auto", gpus_per_tile=0.5)
    assert half.capacity() == Capacity(tiles=2, device="cuda")
    assert RayTasks(address="auto").capacity() == Capacity(tiles=2, device="cpu")
    found, _, _ = played(WhereGpu(), range(2), gpus_per_tile=0.5)
    assert found == {0: ([0], 0.5), 1: ([0], 0.5)}


def test_workers_that_share_a_gpu_give_the_scores_of_one(cluster: Any) -> None:
    if not importlib.import_module("torch").cuda.is_available():
        pytest.skip("needs a GPU")
    mechanism, adversary = preset("housing").training(), RandomDimension()
    canaries = adversary.craft(mechanism, Insertion(), canaries=1, seed=0)
    game = Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=32)
    prepared = prepare(game, Speed(device="cuda", tile_size=8, compile=False))
    found = [
        {tile: block.score.tobytes() for tile, block in play(prepared, executor=executor)}
        for executor in (
            executor_for(prepared),
            RayTasks(address="auto", gpus_per_tile=1),
            RayTasks(address="auto", gpus_per_tile=0.5),
        )
    ]
    assert found[0] == found[1] == found[2]


TRAINING = """
import os
import numpy as np
import ray

def train(canary, inserted, seed):
    assert os.environ["MY_SETTING"] == "3"
    assert ray.get_runtime_context().get_assigned_resources()["CPU"] == 2
    random = np.random.default_rng(seed)
    fate = random.random()
    if fate < 0.2:
        raise ArithmeticError("no result")
    if fate > 0.9:
        os._exit(0)
    return 1.0 * inserted + random.normal()
"""


def test_a_users_training_has_its_own_resources_and_environment(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_training.py").write_text(TRAINING)
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_training import train  # type: ignore[import-not-found]

    executor = RayTasks(
        address="auto",
        cpus_per_tile=2,
        runtime_env={"env_vars": {"MY_SETTING": "3"}},
        attempts=1,
    )
    seeds = {run: training_seed(run, seed=sample_seed(seed=3, runs=12)) for run in range(12)}
    fates = {run: np.random.default_rng(seed).random() for run, seed in seeds.items()}
    raised = [run for run, fate in fates.items() if fate < 0.2]
    ended = [run for run, fate in fates.items() if fate > 0.9]
    assert raised
    assert ended
    result = audit(train, claim=Claim.from_mu(1.0), runs=12, seed=3, executor=executor, anyway=True)
    causes = {failure.run: failure.error.partition(":")[0] for failure in result.failures}
    assert causes == {
        **dict.fromkeys(raised, "ArithmeticError"),
        **dict.fromkeys(ended, "ProcessEnded"),
    }
    assert len(result.scores) + len(result.failures) == 12 == result.runs
    for run, inserted, score in zip(
        result.scores.run, result.scores.inserted, result.scores.score, strict=True
    ):
        random = np.random.default_rng(seeds[int(run)])
        random.random()
        assert score == 1.0 * inserted + random.normal()


@pytest.mark.parametrize(("open_now", "closed"), [("ours", 1), ("another", 0)])
def test_only_its_own_connection_is_closed(open_now: str, closed: int) -> None:
    from unittest.mock import Mock

    from dpaudit.executors.ray_tasks import _close

    fake = Mock()
    fake.get_runtime_context.return_value.get_worker_id.return_value = open_now
    _close(fake, "ours")
    assert fake.shutdown.call_count == closed
