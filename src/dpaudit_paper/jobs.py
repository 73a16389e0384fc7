"""Making several figures, one after the other or each in a process of its own.

While one process trains on the GPU, others compile, compute bounds or train on the CPU. Trainings
that two figures share are played by one of them and read by the other, see `Setting.playing`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from dpaudit._cores import cores
from dpaudit.errors import InvalidInput
from dpaudit.executors import LocalProcesses, Lost, Notify, Player, PlayTile
from dpaudit_paper.base import Figure
from dpaudit_paper.making import STORE, Made, failed, kept, make
from dpaudit_paper.setting import Setting

_THREADS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


def make_all(
    figures: Sequence[Figure], setting: Setting, out: Path, *, again: bool = False
) -> Iterator[Made]:
    """Make figures, ``setting.jobs`` at the same time, and yield each outcome.

    An error is yielded as the outcome of its figure; only an interruption stops all.

    Arguments:
        figures: The figures, in the order in which to begin them.
        setting: The setting; its store is replaced by the one in ``out``.
        out: The folder to write to; created if missing.
        again: Whether to measure again what is already there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"out must be a folder that can be made, got {str(out)!r}: {error.strerror}"
        ) from None
    setting = replace(setting, store=out / STORE)
    waiting, usable = [], True
    for figure in figures:
        found = None if again else kept(figure, setting, out)
        if found is not None:
            yield found
        elif setting.jobs == 1 and usable:
            made = make(figure, setting, out)
            usable = setting.executor is not None or not lost_the_gpu(made)
            yield made
        else:
            waiting.append(figure)
    if waiting:
        yield from make_together(waiting, setting, out)


def make_together(figures: Sequence[Figure], setting: Setting, out: Path) -> Iterator[Made]:
    """Make figures in ``setting.jobs`` processes and yield each outcome as soon as it is known.

    A process that is killed, crashes or loses the GPU fails only its own figure. When no figure is
    left to begin, idle processes play trainings of the longer figures.

    Arguments:
        figures: The figures, in the order in which they are begun. They are pickled, so their
            functions must be those of a module.
        setting: The setting, with its store. If it has a progress callback, the processes print
            lines with the names of their figures instead.
        out: The folder to write to.
    """
    helped = [figure for figure in figures if figure.lines is not None]
    begun = dict.fromkeys((figure.id for figure in figures), time.perf_counter())

    def begin(name: str) -> None:
        begun[name] = time.perf_counter()

    from dpaudit.audits import Silent  # slow to import

    shown = not isinstance(setting.progress, Silent | None)
    player = _FigurePlayer(
        figures=tuple(figures),
        helped=tuple(helped),
        setting=replace(setting, progress=None),
        out=out,
        shown=shown,
    )
    executor = LocalProcesses(
        workers=setting.jobs,
        environment=_environment(setting.jobs),
        attempts=1,
        replaced_after=lost_the_gpu,
    )
    for number, made in executor.play(player, range(len(figures) + len(helped)), begin):
        if number >= len(figures):
            continue  # if its trainings are missing, the figure plays them itself
        figure = figures[number]
        if isinstance(made, Lost):
            why = f"{made.reason}; repeat the command to resume its trainings, or use fewer jobs"
            made = failed(figure, begun[figure.id], why)
        yield made


def lost_the_gpu(made: Made | None) -> bool:
    """Whether a CUDA error, after which its process cannot use the GPU, failed the figure."""
    return made is not None and "CUDA error" in made.error


def _environment(jobs: int) -> dict[str, str]:
    """Divide the cores among the processes, unless the user has chosen the numbers of threads."""
    share = str(max(1, cores() // jobs))
    return {name: share for name in _THREADS if not os.environ.get(name)}


@final
@dataclass(frozen=True, kw_only=True)
class _FigurePlayer(Player):
    """Makes the figure whose number is the tile's; further tiles help with long figures."""

    figures: tuple[Figure, ...]
    helped: tuple[Figure, ...]
    setting: Setting
    out: Path
    shown: bool

    def open(self) -> PlayTile:
        return self._play

    def _play(self, number: int, notify: Notify) -> Made | None:
        helps = number >= len(self.figures)
        figure = self.helped[number - len(self.figures)] if helps else self.figures[number]
        from dpaudit.audits import Bar, Silent  # slow to import

        progress = Bar(label=figure.id) if self.shown else Silent()
        setting = replace(self.setting, progress=progress)
        try:
            if helps:
                return _help(figure, setting)
            notify(figure.id)
            progress.notice("begins")
            return make(figure, setting, self.out)
        finally:
            progress.stop()
            _free_gpu_memory()


def _help(figure: Figure, setting: Setting) -> Made | None:
    """Play trainings of a figure that no process has begun, the last ones first.

    After an error the figure plays these trainings itself, and fails if the error occurs again.
    """
    began = time.perf_counter()
    try:
        _play_lines(figure, setting)
    except Exception as error:
        return failed(figure, began, f"{type(error).__name__}: {error}")
    return None


def _play_lines(figure: Figure, setting: Setting) -> None:
    for line in reversed([] if figure.lines is None else [*figure.lines(setting)]):
        name = line.trainings.name_in(setting)
        missing = line.gpu and not setting.on_gpu
        if not (missing or setting.played_elsewhere(name) or setting.is_stored(name)):
            line.trainings.play(setting)


def _free_gpu_memory() -> None:
    """Return memory that torch keeps for the next training, which may be another process's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()  # an engine and its step refer to each other
        with contextlib.suppress(RuntimeError):  # a CUDA error, which has failed the figure already
            torch.cuda.empty_cache()
