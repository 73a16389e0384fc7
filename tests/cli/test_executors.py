"""Options that choose an executor, and the collection of results of SLURM jobs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.cli import _executors
from dpaudit.cli._executors import make_executor
from dpaudit.cli.collect import collect
from dpaudit.errors import InvalidInput, StoreError
from dpaudit.executors import EXECUTORS, Executor, Player
from dpaudit.scores import ScoreBlock, Store


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


class Blocks(Player):
    def open(self):
        return _block


def _block(tile: int, notify: Any) -> ScoreBlock:
    run = np.arange(2) + 2 * tile
    return ScoreBlock(
        run=run, canary=run * 0, horizon=run * 0 + 5, inserted=run % 2 == 0, score=run * 1.0
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("submitit") is None, reason="needs submitit")
def test_results_of_jobs_are_collected_once(tmp_path: Path, capsys) -> None:
    store = str(tmp_path / "audits.sqlite")
    with Store.open(store) as opened:
        record = opened.begin("mine", {"runs": 6}, {})
    executor: Any = EXECUTORS["slurm"](folder=tmp_path / "jobs", cluster="debug")
    executor.label = record.id
    list(executor.play(Blocks(), [0, 1, 2], print))
    for new in (3, 0):
        capsys.readouterr()
        collect(tmp_path / "jobs", store=store, json=True)
        (row,) = json.loads(capsys.readouterr().out)["audits"]
        assert (row["tiles"], row["new"]) == (3, new)
    with Store.open(store) as opened:
        assert opened.audit("mine").scores().score.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(InvalidInput, match="no results"):
        collect(tmp_path, store=store)
    (tmp_path / "jobs" / record.id).rename(tmp_path / "jobs" / "0123")
    with pytest.raises(StoreError, match="0123"):
        collect(tmp_path / "jobs", store=store)
