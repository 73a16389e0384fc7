"""Making figures: measure, write and draw. A failure of one does not stop the others.

With several jobs one pool of processes plays the trainings of all figures, each once and the
longest first, and then makes the figures.
"""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from dpaudit._cores import cores
from dpaudit._outputs import MARKER, check_output, write_text, write_whole
from dpaudit.errors import DataError, DpauditError, InvalidInput
from dpaudit_paper import style
from dpaudit_paper.base import Figure, Ledger, Scale, Setting
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.trainings import Trainings

STORE = "trainings.sqlite"
"""The file in the output folder that stores trainings."""

SECONDS = "seconds.json"
"""The file in the output folder with the seconds of the trainings that a pool has played."""

_DRAWINGS = {
    "png": {"Software": MARKER},
    "svg": {"Creator": MARKER, "Date": None},
    "pdf": {"Creator": MARKER, "CreationDate": None},
}
"""The formats of a figure with their metadata: a date would make equal drawings differ."""

_ENDINGS = ("csv", *_DRAWINGS, "json", "error.txt")

PARTIAL = "parts that need a GPU are left out"


@final
@dataclass(frozen=True, kw_only=True)
class Made:
    """The outcome of one figure.

    Arguments:
        id: The name of the figure.
        title: Its title.
        outcome: Whether it was made now, kept, redrawn, or failed.
        seconds: The time it took now.
        error: The cause of a failure; empty otherwise.
        files: The files in the folder.
    """

    id: str
    title: str
    outcome: Literal["made", "kept", "redrawn", "failed"]
    seconds: float = 0.0
    error: str = ""
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what ``--json`` prints."""
        return {
            "id": self.id,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 1),
            "error": self.error,
            "files": [str(path) for path in self.files],
        }


def make_all(
    figures: Sequence[Figure],
    setting: Setting,
    out: Path,
    *,
    again: bool = False,
    jobs: int = 1,
    overwrite: bool = False,
) -> Iterator[Made]:
    """Make figures, ``jobs`` at the same time, and yield each outcome.

    An error is yielded as the outcome of its figure; only an interruption stops all.

    Arguments:
        figures: The figures, in the order in which to begin them.
        setting: The setting; its store is replaced by the one in ``out``.
        out: The folder to write to; created if missing.
        again: Whether to measure again what is already there.
        jobs: Number of processes; those of more than one look figures up by their names.
        overwrite: Whether to replace files that dpaudit did not write.
    """
    if jobs > 1 and setting.executor is not None:
        raise InvalidInput(
            f"jobs must be 1 with an executor, got {jobs}: the executor schedules the trainings of "
            "one figure after the other; leave out one of the two"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"out must be a folder that can be made, got {str(out)!r}: {error.strerror}"
        ) from None
    setting = replace(setting, store=out / STORE)
    finished = {figure.id: None if again else _kept(figure, setting, out) for figure in figures}
    unmade = [figure.id for figure in figures if finished[figure.id] is None]
    for name in (SECONDS, *(f"{each}.{ending}" for each in unmade for ending in _ENDINGS)):
        check_output("out", out / name, overwrite=overwrite)
    missing = []
    for figure in figures:
        done = finished[figure.id]
        if done is not None:
            yield done
        elif jobs == 1:
            yield make(figure, setting, out)
        else:
            missing.append(figure)
    if missing:
        yield from _make_together(missing, replace(setting, progress=None), out, jobs)


def make(figure: Figure, setting: Setting, out: Path) -> Made:
    """Make one figure; an error is its outcome.

    Arguments:
        figure: The figure.
        setting: The setting, with its store; its ledger is replaced by a new one.
        out: The folder to write to.
    """

    def measure_and_draw() -> None:
        own = replace(setting, ledger=Ledger(_seconds(out)))
        table = figure.measure(own)
        write_text(out / f"{figure.id}.csv", table.to_csv())
        facts = _describe(figure, own, time.perf_counter() - began)
        # Read the file back: a figure drawn now and one drawn later use the same numbers.
        written = Table.read(out / f"{figure.id}.csv")
        write_drawing(figure, written, out, warning=_warning(facts, written))
        # Written last, because it marks the figure as complete.
        write_text(out / f"{figure.id}.json", json.dumps(facts, indent=1) + "\n")
        (out / f"{figure.id}.error.txt").unlink(missing_ok=True)  # of an earlier attempt

    began = time.perf_counter()
    return _outcome(figure, out, "made", measure_and_draw)


def redraw(figure: Figure, out: Path, *, overwrite: bool = False) -> Made:
    """Draw a figure again from its CSV file, without measuring; an error is its outcome.

    Arguments:
        figure: The figure.
        out: The folder with the CSV file, to which the drawings are written.
        overwrite: Whether to replace files that dpaudit did not write.
    """

    def draw() -> None:
        for ending in _DRAWINGS:
            check_output("out", out / f"{figure.id}.{ending}", overwrite=overwrite)
        table = Table.read(out / f"{figure.id}.csv")
        write_drawing(figure, table, out, warning=_warning(_facts(figure, out) or {}, table))

    return _outcome(figure, out, "redrawn", draw)


def write_drawing(figure: Figure, table: Table, out: Path, *, warning: str) -> None:
    """Write NAME.png, NAME.svg and NAME.pdf from the table.

    Arguments:
        figure: The figure.
        table: The measured table.
        out: The folder.
        warning: A warning to print on the figure; empty for none.
    """
    with style.styled():
        drawing = figure.draw(table)
        if warning:
            style.stamp(drawing, warning)
        for ending, facts in _DRAWINGS.items():
            dpi = 200 if ending == "png" else None
            save = partial(drawing.savefig, format=ending, dpi=dpi, metadata=facts)
            write_whole(out / f"{figure.id}.{ending}", save)


def scale_done(figure: Figure, out: Path) -> Scale | None:
    """The scale at which the figure is complete in a folder, or `None`."""
    facts = _facts(figure, out)
    if facts is None or not (out / f"{figure.id}.csv").is_file():
        return None
    return "full" if facts["scale"] == "full" else "quick"


def left_out(figure: Figure, out: Path) -> tuple[str, ...]:
    """The parts that were left out because there was no GPU."""
    return tuple((_facts(figure, out) or {}).get("left_out_without_gpu", ()))


def _make_together(
    figures: Sequence[Figure], setting: Setting, out: Path, jobs: int
) -> Iterator[Made]:
    """Play the trainings of all figures in one pool, the longest first, then make the figures."""
    needed = {
        each.name_in(setting): each for figure in figures for each in figure.trainings(setting)
    }
    longest = sorted(needed, key=lambda name: needed[name].seconds, reverse=True)
    unfinished = {figure.id: figure.title for figure in figures}
    seconds, began = _seconds(out), time.perf_counter()
    with _share_of_cores(jobs), ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        try:
            played = pool.map(partial(_play, setting=setting), [needed[name] for name in longest])
            for name, took in zip(longest, played, strict=True):
                seconds[name] = round(took, 1)
                content = {"seconds": seconds, "file": MARKER}
                write_text(out / SECONDS, json.dumps(content, indent=1) + "\n")
            for made in pool.map(partial(_make_named, setting=setting, out=out), list(unfinished)):
                del unfinished[made.id]
                yield made
        except BrokenProcessPool:
            cause = "a process was killed; repeat the command to resume its trainings"
            for name, title in unfinished.items():
                yield _failed(name, title, began, cause)


def _play(trainings: Trainings, setting: Setting) -> float:
    """Play trainings for the store in these seconds; an error occurs again in their figure."""
    began = time.perf_counter()
    with suppress(Exception):
        trainings.play(setting)
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # other processes of the pool measure the free memory
    return time.perf_counter() - began


def _make_named(name: str, setting: Setting, out: Path) -> Made:
    from dpaudit_paper.registry import FIGURES

    return make(FIGURES[name], setting, out)


@contextmanager
def _share_of_cores(jobs: int) -> Iterator[None]:
    """Give each process its share of the cores, unless the user has set their number."""
    names = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
    chosen = [name for name in names if name not in os.environ]
    os.environ.update(dict.fromkeys(chosen, str(max(1, cores() // jobs))))
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]


def _outcome(
    figure: Figure, out: Path, outcome: Literal["made", "redrawn"], work: Callable[[], None]
) -> Made:
    """Do the work on a figure; an error is the outcome of the figure."""
    began = time.perf_counter()
    try:
        work()
    except DpauditError as error:
        return _failed(figure.id, figure.title, began, str(error))
    except Exception as error:
        # A bug in one figure: the traceback goes to a file, and the others are still made.
        write_text(out / f"{figure.id}.error.txt", f"{traceback.format_exc()}\n({MARKER})\n")
        cause = f"{type(error).__name__}: {error}; the traceback is in {figure.id}.error.txt"
        return _failed(figure.id, figure.title, began, cause)
    return Made(
        id=figure.id,
        title=figure.title,
        outcome=outcome,
        seconds=time.perf_counter() - began,
        files=_files_of(figure, out),
    )


def _failed(name: str, title: str, began: float, error: str) -> Made:
    seconds = time.perf_counter() - began
    return Made(id=name, title=title, outcome="failed", seconds=seconds, error=error)


def _kept(figure: Figure, setting: Setting, out: Path) -> Made | None:
    """The finished figure in the folder with this seed, at this scale or in full, or `None`."""
    try:
        facts, done = _facts(figure, out), scale_done(figure, out)
    except DataError as error:
        return _failed(figure.id, figure.title, time.perf_counter(), str(error))
    if facts is None or done is None or facts.get("seed") != setting.seed:
        return None
    if setting.full and done != "full":
        return None
    if facts.get("left_out_without_gpu") and setting.on_gpu:
        return None
    return Made(id=figure.id, title=figure.title, outcome="kept", files=_files_of(figure, out))


def _files_of(figure: Figure, out: Path) -> tuple[Path, ...]:
    paths = (out / f"{figure.id}.{ending}" for ending in ("csv", *_DRAWINGS, "json"))
    return tuple(path for path in paths if path.is_file())


def _describe(figure: Figure, setting: Setting, seconds: float) -> dict[str, Any]:
    """The facts that are needed to repeat the numbers."""
    return {
        "id": figure.id,
        "title": figure.title,
        "label": figure.label,
        "scale": "full" if figure.alike else setting.scale,
        "seed": setting.seed,
        "seconds": round(seconds, 1),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": _device(setting),
        "versions": _versions(),
        "notes": setting.ledger.notes,
        "left_out_without_gpu": setting.ledger.left_out,
        "audits": setting.ledger.audits,
        "file": MARKER,
    }


def _warning(facts: Mapping[str, Any], table: Table) -> str:
    """The warning for a quick or incomplete figure, with the number of its seeds."""
    said = []
    if facts.get("scale") == "quick":
        seeds = len(set(table.column("seed"))) if "seed" in table.columns else 0
        many = "one seed" if seeds == 1 else f"{seeds} seeds"
        said = [f"quick version: {many + ', ' if seeds else ''}fewer runs than the paper"]
    said += [PARTIAL] if facts.get("left_out_without_gpu") else []
    return "; ".join(said)


def _device(setting: Setting) -> str:
    used = dict.fromkeys(str(entry["device"]) for entry in setting.ledger.audits) or {"cpu": None}
    processor = f"cpu ({cores()} cores, {platform.machine()})"
    return ", ".join(processor if name == "cpu" else name for name in used)


def _versions() -> dict[str, str]:
    import numpy
    import scipy

    from dpaudit._version import __version__

    versions = {
        "dpaudit": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
    try:
        import torch
    except ImportError:
        return versions
    return versions | {"torch": torch.__version__}


def _seconds(out: Path) -> dict[str, float]:
    path = out / SECONDS
    content = json.loads(path.read_text(encoding="utf8")) if path.is_file() else {}
    return dict(content.get("seconds", {}))


def _facts(figure: Figure, out: Path) -> dict[str, Any] | None:
    path = out / f"{figure.id}.json"
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf8"))
    except (OSError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; make the figure again") from None
    if not isinstance(facts, dict) or "scale" not in facts:
        raise DataError(f"{path} does not say at which scale it was made; make the figure again")
    return facts
