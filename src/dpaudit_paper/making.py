"""Making figures: measure, write and draw. A failure of one does not stop the others.

With several jobs each figure is made by a process of its own, the same command for one figure.
Trainings that two figures share are played by one of them and read from the store by the other, see
`Setting.playing`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from dpaudit._cores import cores
from dpaudit._outputs import write_text, write_whole
from dpaudit.errors import DataError, DpauditError, InvalidInput
from dpaudit_paper import style
from dpaudit_paper.base import Figure, Ledger, Scale, Setting
from dpaudit_paper.table import Table

STORE = "trainings.sqlite"
"""The file in the output folder that stores trainings."""

QUICK = "quick version: fewer runs than the paper"
PARTIAL = "parts that need a GPU are left out"

Result = TypeVar("Result")
Outcome = Literal["made", "kept", "redrawn", "failed"]


@final
@dataclass(frozen=True, kw_only=True)
class Made:
    """The outcome of one figure.

    Arguments:
        figure: The figure.
        outcome: Whether it was made now, kept, redrawn, or failed.
        seconds: The time it took now.
        error: The cause of a failure; empty otherwise.
        files: The files in the folder.
    """

    figure: Figure
    outcome: Outcome
    seconds: float = 0.0
    error: str = ""
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what ``--json`` prints."""
        return {
            "id": self.figure.id,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 1),
            "error": self.error,
            "files": [str(path) for path in self.files],
        }


def make_all(
    figures: Sequence[Figure], setting: Setting, out: Path, *, again: bool = False, jobs: int = 1
) -> Iterator[Made]:
    """Make figures, ``jobs`` at the same time, and yield each outcome.

    An error is yielded as the outcome of its figure; only an interruption stops all.

    Arguments:
        figures: The figures, in the order in which to begin them.
        setting: The setting; its store is replaced by the one in ``out``.
        out: The folder to write to; created if missing.
        again: Whether to measure again what is already there.
        jobs: Number of figures made at the same time.
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
    missing = []
    for figure in figures:
        done = None if again else kept(figure, setting, out)
        if done is not None:
            yield done
        elif jobs == 1:
            yield make(figure, setting, out)
        else:
            missing.append(figure)
    if missing:
        share = str(max(1, cores() // jobs))
        threads = {name: os.environ.get(name) or share for name in _THREADS}
        with ThreadPoolExecutor(jobs) as pool:
            begun = [pool.submit(make_apart, figure, setting, out, threads) for figure in missing]
            yield from (future.result() for future in as_completed(begun))


_THREADS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


def make_apart(figure: Figure, setting: Setting, out: Path, environment: Mapping[str, str]) -> Made:
    """Make one figure in a process of its own; one that is killed fails only its figure."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "dpaudit_paper", figure.id, "--out", str(out), "--again"]
    command += ["--scale", setting.scale, "--device", setting.device, "--seed", str(setting.seed)]
    command += [] if setting.data_dir is None else ["--data-dir", setting.data_dir]
    done = subprocess.run(
        [*command, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        (made,) = json.loads(done.stdout)["figures"]
    except (ValueError, KeyError):
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return failed(figure, began, f"{reason}; repeat the command to resume its trainings")
    return Made(
        figure=figure,
        outcome=made["outcome"],
        seconds=made["seconds"],
        error=made["error"],
        files=tuple(map(Path, made["files"])),
    )


def kept(figure: Figure, setting: Setting, out: Path) -> Made | None:
    """A figure that is already made; an error in reading it is its outcome."""
    return _outcome(figure, out, partial(_kept, figure, setting, out))


def make(figure: Figure, setting: Setting, out: Path) -> Made:
    """Make one figure; an error is its outcome.

    Arguments:
        figure: The figure.
        setting: The setting, with its store; its ledger is replaced by a new one.
        out: The folder to write to.
    """
    own = replace(setting, ledger=Ledger())
    return _outcome(figure, out, partial(_make, figure, own, out))


def redraw_all(figures: Sequence[Figure], out: Path) -> Iterator[Made]:
    """Draw figures again; one without a CSV file fails without stopping the others."""
    for figure in figures:
        yield _outcome(figure, out, partial(redraw, figure, out))


def redraw(figure: Figure, out: Path) -> Made:
    """Draw a figure again from its CSV file, without measuring."""
    began = time.perf_counter()
    table = Table.read(out / f"{figure.id}.csv")
    facts = _facts(out / f"{figure.id}.json") or {}
    write_drawing(figure, table, out, warning=_warning(facts))
    return Made(
        figure=figure,
        outcome="redrawn",
        seconds=time.perf_counter() - began,
        files=files_of(figure, out),
    )


def scale_done(figure: Figure, out: Path) -> Scale | None:
    """The scale at which the figure is complete in a folder, or `None`."""
    facts = _facts(out / f"{figure.id}.json")
    if facts is None or not (out / f"{figure.id}.csv").is_file():
        return None
    return "full" if facts["scale"] == "full" else "quick"


def left_out(figure: Figure, out: Path) -> tuple[str, ...]:
    """The parts that were left out because there was no GPU."""
    facts = _facts(out / f"{figure.id}.json") or {}
    return tuple(facts.get("left_out_without_gpu", ()))


def files_of(figure: Figure, out: Path) -> tuple[Path, ...]:
    """The files of the figure that exist."""
    paths = (out / f"{figure.id}.{ending}" for ending in ("csv", "png", "svg", "pdf", "json"))
    return tuple(path for path in paths if path.is_file())


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
        png = partial(drawing.savefig, format="png", dpi=200)
        write_whole(out / f"{figure.id}.png", png)
        for suffix, date in (("svg", "Date"), ("pdf", "CreationDate")):
            save = partial(drawing.savefig, format=suffix, metadata={date: None})
            write_whole(out / f"{figure.id}.{suffix}", save)


def _outcome(figure: Figure, out: Path, work: Callable[[], Result]) -> Result | Made:
    """The result of work on a figure; an error is the outcome of the figure."""
    began = time.perf_counter()
    try:
        return work()
    except DpauditError as error:
        return failed(figure, began, str(error))
    except Exception as error:
        # A bug in one figure: the traceback goes to a file, and the others are still made.
        write_text(out / f"{figure.id}.error.txt", traceback.format_exc())
        cause = f"{type(error).__name__}: {error}; the traceback is in {figure.id}.error.txt"
        return failed(figure, began, cause)


def _make(figure: Figure, setting: Setting, out: Path) -> Made:
    began = time.perf_counter()
    table = figure.measure(setting)
    seconds = time.perf_counter() - began
    write_text(out / f"{figure.id}.csv", table.to_csv())
    # Read the file back: a figure drawn now and one drawn later use the same numbers.
    facts = _describe(figure, setting, seconds) | _before(figure, setting, out)
    write_drawing(figure, Table.read(out / f"{figure.id}.csv"), out, warning=_warning(facts))
    # Written last, because it marks the figure as complete.
    write_text(out / f"{figure.id}.json", json.dumps(facts, indent=1) + "\n")
    (out / f"{figure.id}.error.txt").unlink(missing_ok=True)  # of an earlier attempt
    return Made(
        figure=figure,
        outcome="made",
        seconds=time.perf_counter() - began,
        files=files_of(figure, out),
    )


def _kept(figure: Figure, setting: Setting, out: Path) -> Made | None:
    """The finished figure in the folder with this seed, at this scale or in full, or `None`."""
    facts = _facts(out / f"{figure.id}.json")
    done = scale_done(figure, out)
    if facts is None or done is None or facts.get("seed") != setting.seed:
        return None
    if setting.full and done != "full":
        return None
    if facts.get("left_out_without_gpu") and setting.on_gpu:
        return None
    return Made(figure=figure, outcome="kept", files=files_of(figure, out))


def failed(figure: Figure, began: float, error: str) -> Made:
    """The outcome of a figure that was begun at a time of `time.perf_counter` and failed."""
    return Made(figure=figure, outcome="failed", seconds=time.perf_counter() - began, error=error)


def _describe(figure: Figure, setting: Setting, seconds: float) -> dict[str, Any]:
    """The facts that are needed to repeat the numbers."""
    return {
        "id": figure.id,
        "title": figure.title,
        "label": figure.label,
        "scale": _scale(figure, setting),
        "seed": setting.seed,
        "seconds": round(seconds, 1),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": _device(setting),
        "versions": _versions(),
        "notes": setting.ledger.notes,
        "left_out_without_gpu": setting.ledger.left_out,
        "audits": setting.ledger.audits,
    }


def _warning(facts: Mapping[str, Any]) -> str:
    """The warning for a quick or incomplete figure."""
    said = [QUICK] if facts.get("scale") == "quick" else []
    said += [PARTIAL] if facts.get("left_out_without_gpu") else []
    return "; ".join(said)


def _before(figure: Figure, setting: Setting, out: Path) -> dict[str, float]:
    """The time spent earlier on trainings that were found in the store."""
    path = out / f"{figure.id}.json"
    if not any(entry["runs_from_store"] for entry in setting.ledger.audits) or not path.is_file():
        return {"seconds_before": 0.0}
    earlier = _facts(path) or {}
    spent = float(earlier.get("seconds", 0.0)) + float(earlier.get("seconds_before", 0.0))
    return {"seconds_before": round(spent, 1)}


def _scale(figure: Figure, setting: Setting) -> Scale:
    return "full" if figure.alike else setting.scale


def _device(setting: Setting) -> str:
    used = dict.fromkeys(str(entry["device"]) for entry in setting.ledger.audits)
    names = [f"{name} ({_processor()})" if name == "cpu" else name for name in used]
    return ", ".join(names) or f"cpu ({_processor()})"


def _processor() -> str:
    """The number of cores and the architecture."""
    return f"{cores()} cores, {platform.machine()}"


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


def _facts(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf8"))
    except (OSError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; make the figure again") from None
    if not isinstance(found, dict) or "scale" not in found:
        raise DataError(f"{path} does not say at which scale it was made; make the figure again")
    return found
