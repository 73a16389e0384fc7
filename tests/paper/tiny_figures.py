"""Figures that other processes can import, for tests of several jobs."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from dpaudit.adversaries import RandomDimension
from dpaudit_paper import Cost, Figure, Setting, Table, style
from dpaudit_paper.readings import Line, curve_rows, curves
from dpaudit_paper.trainings import Trainings

TINY = Trainings(preset="housing", adversary=RandomDimension(), runs=4, insertions=3)


def folder(setting: Setting) -> Path:
    assert setting.store is not None
    return setting.store.parent


def wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"none of {paths} after a minute"
        time.sleep(0.02)


def first(setting: Setting) -> Table:
    return _shared(setting, "first", "second")


def second(setting: Setting) -> Table:
    return _shared(setting, "second", "first")


def _shared(setting: Setting, own: str, other: str) -> Table:
    """The same trainings in both; with two jobs, they begin at the same time."""
    (folder(setting) / own).touch()
    if setting.jobs > 1:
        wait_for(folder(setting) / other)
    return Table.of(curve_rows(TINY, setting, series="A_GC-R"))


def lines(setting: Setting) -> list[Line]:
    return [Line(series=str(seed), trainings=replace(TINY, seed=seed)) for seed in (1, 2)]


def helped(setting: Setting) -> Table:
    """With several jobs, begins when another process has played its last line."""
    last = lines(setting)[-1].trainings.name_in(setting)
    deadline = time.monotonic() + 60
    while setting.jobs > 1 and not setting.is_stored(last):
        assert time.monotonic() < deadline, "nobody has helped for a minute"
        time.sleep(0.1)
    return curves(setting, lines(setting))


def threads(setting: Setting) -> Table:
    import torch

    return Table.of(
        [
            {
                "openmp": int(os.environ["OMP_NUM_THREADS"]),
                "compiler": int(os.environ["TORCHINDUCTOR_COMPILE_THREADS"]),
                "torch": torch.get_num_threads(),
            }
        ]
    )


def killed(setting: Setting) -> Table:
    wait_for(folder(setting) / "sleeps")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def loses_the_gpu(setting: Setting) -> Table:
    """Fails like a CUDA error, which every later use of the GPU in this process reports too."""
    (folder(setting) / "lost").write_text(str(os.getpid()))
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def needs_the_gpu(setting: Setting) -> Table:
    if (folder(setting) / "lost").read_text() == str(os.getpid()):
        return loses_the_gpu(setting)
    (folder(setting) / "needed").touch()
    return Table.of([{"x": 1.0}])


def waits(setting: Setting) -> Table:
    wait_for(folder(setting) / "needed")
    return Table.of([{"x": 1.0}])


def unhelpful(setting: Setting) -> list[Line]:
    raise RuntimeError("CUDA error: device-side assert triggered")


def sleeps(setting: Setting) -> Table:
    with setting.playing("slow"):
        (folder(setting) / "draft").write_text(str(os.getpid()))
        (folder(setting) / "draft").rename(folder(setting) / "sleeps")
        time.sleep(600)
    raise AssertionError("not stopped")


def draw(table: Table):
    return style.new_figure(height=1.0)[0]


def findings(table: Table) -> str:
    return f"{len(table)} rows."


def tiny(name: str, measure, *, seconds: float = 1.0, lines=None) -> Figure:
    cost = Cost(cpu=seconds, gpu=seconds)
    return Figure(
        id=name, title=name, label="", quick=cost, full=cost,
        lines=lines, measure=measure, draw=draw, findings=findings,
    )  # fmt: skip
