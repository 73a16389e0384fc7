"""Options that choose an executor, and the collection of results of SLURM jobs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.audits.identity import DescribedAdversary, DescribedTraining, Description
from dpaudit.cli import _audit_options as _executors
from dpaudit.cli._audit_options import make_executor
from dpaudit.cli.audits import collect
from dpaudit.errors import DpauditError, InvalidInput, StoreError
from dpaudit.executors import EXECUTORS, Executor, Player
from dpaudit.scores import ScoreBlock, Store
from dpaudit.trainings.coins import inserted_in


def test_without_options_this_machine_plays() -> None:
    assert make_executor() is None
    assert make_executor(executor="local") is None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"executor": "roy"}, "ray"),
        ({"executor": "ray", "ray_address": "here"}, "address"),
        ({"executor": "ray", "slurm_folder": "x"}, "folder"),
        ({"executor": "slurm", "ray_address": "auto"}, "address"),
        ({"executor": "slurm", "gpus_per_tile": 0.5}, "gpus_per_tile"),
        ({"gpus_per_tile": 1.0}, "--gpus-per-tile"),
        ({"ray_address": "auto"}, "--ray-address"),
        ({"slurm_partition": "gpu"}, "--slurm-partition"),
        ({"executor": "in-process", "timeout": 5.0}, "--timeout"),
        ({"executor": "ray", "gpus_per_tile": -1.0}, "gpus_per_tile"),
        ({"executor": "ray", "ray_runtime_env": "["}, "JSON"),
        ({"executor": "ray", "ray_runtime_env": "[]"}, "JSON"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        make_executor(**options)


def test_options_reach_the_executor() -> None:
    ray = make_executor(executor="ray", gpus_per_tile=0.5, accelerator="H100", ray_address="local")
    assert isinstance(ray, EXECUTORS["ray"])
    assert isinstance(make_executor(executor="in-process"), EXECUTORS["in-process"])
    slurm = make_executor(executor="slurm", gpus_per_tile=1.0, slurm_partition="gpu")
    assert isinstance(slurm, EXECUTORS["slurm"])


def test_an_executor_of_another_package_receives_the_options_that_it_takes(monkeypatch) -> None:
    class Shares(Executor):
        def __init__(self, *, gpus_per_tile: float = 0.0) -> None:
            super().__init__()
            self.share = gpus_per_tile

        def play(self, player: Player, tiles: Any, notify: Any) -> Any:
            raise NotImplementedError

    monkeypatch.setattr(_executors, "EXECUTORS", {"shares": Shares})
    made: Any = make_executor(executor="shares", gpus_per_tile=0.25)
    assert made.share == 0.25
    with pytest.raises(InvalidInput, match="--cpus-per-tile"):
        make_executor(executor="shares", cpus_per_tile=2.0)


DESCRIPTION = Description(
    mechanism=DescribedTraining(name="mine:train", source="0"),
    adversary=DescribedAdversary(name="score"),
    runs=3,
)


class Blocks(Player):
    """The runs of an audit of a function, one tile each; ``tamper`` changes what they hold."""

    def __init__(self, tamper: str = "") -> None:
        self.tamper = tamper

    def open(self):
        return self._block

    def _block(self, tile: int, notify: Any) -> ScoreBlock:
        run = np.array([tile + (self.tamper == "run")])
        coins = inserted_in(tile, canaries=1, seed=DESCRIPTION.sample(0).seed)
        return ScoreBlock(
            run=run,
            canary=run * 0,
            horizon=run * 0,
            inserted=coins ^ (self.tamper == "coins"),
            score=run * 1.0,
        )


NEEDS_SUBMITIT = pytest.mark.skipif(find_spec("submitit") is None, reason="needs submitit")


def _played(folder: Path, store: str, player: Player, tiles: list[int]) -> str:
    """An audit in the store, and the results of its jobs in a folder; its identity."""
    with Store.open(store) as opened:
        record = opened.begin("mine", DESCRIPTION.to_dict(), {})
    executor: Any = EXECUTORS["slurm"](folder=folder, cluster="debug")
    executor.label = f"{record.id}-0"
    list(executor.play(player, tiles, print))
    return record.id


@pytest.mark.filterwarnings("ignore")
@NEEDS_SUBMITIT
def test_results_of_jobs_are_collected_once(tmp_path: Path, capsys) -> None:
    store, jobs = str(tmp_path / "audits.sqlite"), tmp_path / "jobs"
    audit = _played(jobs, store, Blocks(), [0, 1, 2])
    for new in (3, 0):
        capsys.readouterr()
        collect(jobs, store=store, json=True)
        (row,) = json.loads(capsys.readouterr().out)["audits"]
        assert (row["tiles"], row["new"]) == (3, new)
    with Store.open(store) as opened:
        assert opened.audit("mine").scores().score.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(InvalidInput, match="no results"):
        collect(tmp_path, store=store)
    (jobs / f"{audit}-0").rename(jobs / "0123-0")
    with pytest.raises(StoreError, match="0123"):
        collect(jobs, store=store)


@pytest.mark.filterwarnings("ignore")
@NEEDS_SUBMITIT
@pytest.mark.parametrize(
    ("tamper", "tiles", "message"),
    [("run", [0], "column run"), ("coins", [0], "column inserted"), ("", [7], "no such tile")],
)
def test_results_that_are_not_of_the_audit_are_refused(
    tmp_path: Path, tamper: str, tiles: list[int], message: str
) -> None:
    store, jobs = str(tmp_path / "audits.sqlite"), tmp_path / "jobs"
    _played(jobs, store, Blocks(tamper), tiles)
    with pytest.raises(InvalidInput, match=message):
        collect(jobs, store=store)
    with Store.open(store) as opened:
        assert not opened.audit("mine").finished_tiles()


@pytest.mark.filterwarnings("ignore")
@NEEDS_SUBMITIT
def test_results_of_another_audit_or_tile_are_refused(tmp_path: Path) -> None:
    store, jobs = str(tmp_path / "audits.sqlite"), tmp_path / "jobs"
    audit = _played(jobs, store, Blocks(), [0, 1])
    folder = jobs / f"{audit}-0"
    content = (folder / "000000000.tile").read_bytes()
    for wrong in (content, content.replace(audit.encode(), b"0" * 16), b"\x80\x04K\x01."):
        (folder / "000000001.tile").write_bytes(wrong)
        with pytest.raises(DpauditError, match="cannot read the result"):
            collect(jobs, store=store)
