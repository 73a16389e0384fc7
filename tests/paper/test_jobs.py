"""Several figures at the same time: threads, shared trainings, killed processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from dpaudit._cores import cores
from dpaudit.cli import main
from dpaudit.errors import InvalidInput
from dpaudit.executors import InProcess
from dpaudit_paper import FIGURES, Setting, Table, chosen, make_all
from dpaudit_paper import registry as registry_module
from dpaudit_paper.jobs import _environment, _free_gpu_memory, _help, lost_the_gpu
from dpaudit_paper.readings import Line, curves
from dpaudit_paper.trainings import speed_for

VARIABLES = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


@pytest.fixture(scope="module")
def figures():
    """The module of small figures, where worker processes find it too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        import tiny_figures

        yield tiny_figures


@pytest.fixture(scope="module")
def together(figures, tmp_path_factory):
    """The folder and the printed JSON of one command with two jobs."""
    out = tmp_path_factory.mktemp("together")
    made = [
        figures.tiny("A", figures.threads, seconds=1.0),
        figures.tiny("B", figures.first, seconds=3.0),
        figures.tiny("C", figures.second, seconds=2.0),
        figures.tiny("D", figures.helped, seconds=0.5, lines=figures.lines),
    ]
    command = "dpaudit reproduce all --device cpu --jobs 2 --json --out"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for variable in VARIABLES:
            patch.delenv(variable, raising=False)
        patch.setattr(registry_module, "FIGURES", {one.id: one for one in made})
        patch.setattr(sys, "argv", [*command.split(), str(out)])
        with pytest.raises(SystemExit) as exit_of:
            main()
    assert not exit_of.value.code
    return out, json.loads(printed.getvalue())


def test_all_figures_are_made(together):
    out, printed = together
    assert {one["id"]: one["outcome"] for one in printed["figures"]} == dict.fromkeys(
        "ABCD", "made"
    )
    assert {json.loads((out / f"{name}.json").read_text())["jobs"] for name in "ABCD"} == {2}


def test_the_numbers_do_not_depend_on_the_number_of_jobs(together, figures, tmp_path):
    out, _ = together
    (made,) = make_all([figures.tiny("B", figures.first)], Setting(device="cpu"), tmp_path)
    assert made.outcome == "made"
    alone = (tmp_path / "B.csv").read_bytes()
    assert [(out / name).read_bytes() for name in ("B.csv", "C.csv")] == [alone, alone]


def test_trainings_of_two_figures_are_played_once(together):
    out, _ = together
    audits = [json.loads((out / f"{name}.json").read_text())["audits"] for name in "BC"]
    assert sorted(one["runs_from_store"] for (one,) in audits) == [0, 4]


def test_idle_processes_play_trainings_of_a_longer_figure(together):
    out, _ = together
    audits = json.loads((out / "D.json").read_text())["audits"]
    stored = {audit["seed"]: audit["runs_from_store"] for audit in audits}
    assert set(stored) == {1, 2}
    assert stored[2] == 4
    assert list(Table.read(out / "D.csv").words("series")) == ["1", "2"]


def test_each_process_has_its_share_of_the_cores(together):
    out, _ = together
    (row,) = Table.read(out / "A.csv").rows
    assert row == (max(1, cores() // 2),) * 3


def test_finished_figures_are_kept_without_a_process(together, figures, monkeypatch):
    out, _ = together
    monkeypatch.setattr("dpaudit_paper.jobs.make_together", None)
    again = [figures.tiny("A", figures.threads)]
    (made,) = make_all(again, Setting(device="cpu", jobs=2), out)
    assert made.outcome == "kept"


def test_cores_are_divided_unless_the_user_has_set_the_number_of_threads(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("dpaudit_paper.jobs.cores", lambda: 16)
    assert _environment(3) == dict.fromkeys(VARIABLES, "5")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert _environment(17) == {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def test_a_killed_process_fails_its_figure_and_an_interruption_ends_the_others(figures, tmp_path):
    pair = [figures.tiny("A", figures.killed), figures.tiny("B", figures.sleeps)]
    making = make_all(pair, Setting(device="cpu", jobs=2), tmp_path)
    failed = next(making)
    assert (failed.figure.id, failed.outcome) == ("A", "failed")
    assert "SIGKILL" in failed.error
    sleeper = int((tmp_path / "sleeps").read_text())
    os.kill(sleeper, 0)  # raises unless it is still alive
    (lock,) = (tmp_path / "trainings.sqlite-locks").iterdir()
    with pytest.raises(TimeoutError):
        FileLock(lock).acquire(blocking=False)
    began = time.monotonic()
    making.close()  # as an interruption does
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
    FileLock(lock).acquire(blocking=False).lock.release()


def test_a_cuda_error_that_remains_does_not_stop_the_other_figures(monkeypatch):
    def fails():
        raise RuntimeError("CUDA error: device-side assert triggered")

    cuda = SimpleNamespace(is_initialized=lambda: True, empty_cache=fails)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    _free_gpu_memory()


@pytest.mark.parametrize(("jobs", "order"), [(1, "ABC"), (2, "ACB")])
def test_a_process_that_lost_the_gpu_is_replaced(figures, tmp_path, jobs, order):
    """With two jobs, C occupies one process until B is made in the place of the other."""
    measures = {"A": figures.loses_the_gpu, "B": figures.needs_the_gpu, "C": figures.waits}
    chosen_figures = [figures.tiny(name, measures[name]) for name in order]
    made = make_all(chosen_figures, Setting(device="cpu", jobs=jobs), tmp_path)
    assert {one.figure.id: one.outcome for one in made} == {"A": "failed", "B": "made", "C": "made"}


def test_an_error_while_helping_says_whether_the_gpu_is_lost(figures):
    helped = figures.tiny("A", figures.waits, lines=figures.unhelpful)
    assert lost_the_gpu(_help(helped, Setting(device="cpu")))


def test_trainings_of_another_process_come_last(not_trained, tmp_path, figures):
    setting = Setting(device="cpu", store=tmp_path / "trainings.sqlite")
    lines = [
        Line(series=str(seed), trainings=replace(figures.TINY, seed=seed, runs=40))
        for seed in range(3)
    ]
    with setting.playing(lines[0].trainings.name_in(setting)):
        table = curves(setting, lines)
    assert [audit["seed"] for audit in setting.ledger.audits] == [1, 2, 0]
    assert list(table.words("series")) == ["0", "1", "2"]


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_a_wrong_number_of_jobs_is_refused(jobs):
    with pytest.raises(InvalidInput, match=f"jobs must be .* got {jobs}"):
        Setting(jobs=jobs)


def test_several_jobs_with_an_executor_are_refused():
    with pytest.raises(InvalidInput, match="jobs must be 1 with an executor, got 2"):
        Setting(jobs=2, executor=InProcess())


def test_the_longest_figure_is_begun_first():
    costs = [one.full.gpu for one in chosen(["all"], scale="full", gpu=True, longest_first=True)]
    assert len(costs) == len(FIGURES)
    assert costs == sorted(costs, reverse=True)


def test_auto_trains_the_housing_network_on_the_cpu_even_with_a_gpu(monkeypatch):
    monkeypatch.setattr(Setting, "on_gpu", property(lambda self: True))
    assert speed_for("housing", Setting(device="auto")).device == "cpu"
    assert speed_for("housing", Setting(device="cuda")).device == "cuda"
    assert speed_for("convnet", Setting(device="auto")).device == "auto"
    # Without a C++ compiler there is no fused step, and the machines of an executor choose.
    assert speed_for("housing", Setting(executor=InProcess())).device == "auto"
    monkeypatch.setattr("dpaudit.engine.fused.can_build", lambda: False)
    assert speed_for("housing", Setting(device="auto")).device == "auto"
