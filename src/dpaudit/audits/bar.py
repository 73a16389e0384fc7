"""The progress of an audit as a bar, or as lines in a log."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any, final

from dpaudit._numbers import counted, duration
from dpaudit._validate import printable
from dpaudit.audits import progress
from dpaudit.audits.progress import Progress
from dpaudit.executors import Status

SECONDS_BETWEEN_LINES = 5.0
"""If standard error is not a terminal, the shortest time between two lines."""


@final
class Bar(Progress):
    """Shows the stage, runs done, rate, time left, and workers.

    A bar on a terminal or in a notebook; otherwise a line on standard error every few seconds.
    """

    def __init__(self, *, label: str = "") -> None:
        self._label = f"{label}: " if label else ""
        self._state = _State()
        self._display: Any = None

    @property
    def runs(self) -> int:
        """Number of runs of the audit; 0 before playing begins."""
        return self._state.runs

    @property
    def done(self) -> int:
        """Number of runs that are done."""
        return self._state.done

    def begin(self, *, runs: int, done: int) -> None:
        state = self._state
        state.runs, state.done, state.resumed, state.began = runs, done, done, time.perf_counter()
        self._show()

    def stage(self, name: str) -> None:
        if name != self._state.stage:
            self._state.stage = name
            self._show()

    def advance(self, runs: int) -> None:
        self._state.done += runs
        self._state.stage = "training"
        self._show()

    def watch(self, status: Status) -> None:
        self._state.status = status

    def notice(self, text: str) -> None:
        self._shown().say(f"dpaudit: {self._label}{text}")

    def stop(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _shown(self) -> Any:
        if self._display is None:
            self._display = _Lines(self._label) if self._label else _display()
        return self._display

    def _show(self) -> None:
        self._shown().show(self._state)


@dataclass(kw_only=True)
class _State:
    """What a display shows."""

    stage: str = ""
    runs: int = 0
    done: int = 0
    resumed: int = 0
    began: float = field(default_factory=time.perf_counter)
    status: Status | None = None

    @property
    def text(self) -> str:
        """Everything except for the stage; empty before playing begins."""
        if not self.runs:
            return ""
        parts = [f"{self.done:,} of {self.runs:,} runs"]
        # Runs from the store took no time, so they do not count in the rate.
        played, seconds = self.done - self.resumed, time.perf_counter() - self.began
        if played and seconds > 0:
            speed = played / seconds
            parts.append(_rate(speed))
            if self.done < self.runs:
                parts.append(f"{duration((self.runs - self.done) / speed)} left")
        if self.status is not None and self.status.workers:
            parts.append(status_text(self.status))
        return ", ".join(parts)

    @property
    def events(self) -> tuple[object, ...]:
        """What must differ for another line; the rate alone changes all the time."""
        status = "" if self.status is None else status_text(self.status)
        return self.stage, self.runs, self.done, status

    @property
    def line(self) -> str:
        """Stage and text in one line."""
        return ": ".join(part for part in (self.stage, self.text) if part)


def _display() -> _Terminal | _Notebook | _Lines:
    if progress.in_notebook():
        return _Notebook()
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    return _Terminal(console) if console.is_terminal else _Lines()


@final
class _Terminal:
    """A bar of `rich`, which moves by itself while a stage has no number of runs."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None, text="")
        self._bar.start()

    def show(self, state: _State) -> None:
        timing: dict[str, Any] = {}
        if state.runs:
            timing = {"total": state.runs, "completed": state.done}
        self._bar.update(self._task, description=state.stage, text=state.text, **timing)

    def say(self, text: str) -> None:
        self._bar.console.print(printable(text), markup=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


@final
class _Notebook:
    """A bar in the output of a cell; it needs no widgets."""

    def __init__(self) -> None:
        shell = import_module("IPython.display")
        self._html = shell.HTML
        self._handle = shell.display(self._html(""), display_id=True)
        self._last = 0.0

    def show(self, state: _State) -> None:
        now = time.perf_counter()
        if now - self._last < 0.3:
            return
        self._last = now
        attributes = f' max="{state.runs}" value="{state.done}"' if state.runs else ""
        self._handle.update(self._html(f"<progress{attributes}></progress> {escape(state.line)}"))

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr)

    def stop(self) -> None:
        self._handle.update(self._html(""))


@final
class _Lines:
    """A line on standard error every few seconds, if something changed since the last one.

    A command that ends before the first line, such as one with a mistake, prints nothing else.
    """

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._state: _State | None = None
        self._printed: tuple[object, ...] = ()
        self._last, self._lock = time.perf_counter(), threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._tick, daemon=True).start()

    def show(self, state: _State) -> None:
        self._state = state
        self._print_if_due()

    def say(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._stopped.set()

    def _tick(self) -> None:
        while not self._stopped.wait(1.0):
            self._print_if_due()

    def _print_if_due(self) -> None:
        with self._lock:
            now = time.perf_counter()
            if self._state is None or now - self._last < SECONDS_BETWEEN_LINES:
                return
            if self._state.events == self._printed:
                return
            self._last, self._printed = now, self._state.events
            with contextlib.suppress(OSError, ValueError):  # standard error may be closed
                self.say(f"dpaudit: {self._label}{self._state.line}")


def status_text(status: Status) -> str:
    """The status of an executor in a few words.

    Example:
        >>> status_text(Status(workers=8, in_flight=18, retries=1))
        '8 workers, 18 tiles in flight, 1 retry'
    """

    parts = [counted(status.workers, "worker"), f"{counted(status.in_flight, 'tile')} in flight"]
    if status.retries:
        parts.append(f"{status.retries} {'retry' if status.retries == 1 else 'retries'}")
    if status.lost_nodes:
        parts.append(f"{counted(status.lost_nodes, 'machine')} lost")
    return ", ".join(parts)


def _rate(speed: float) -> str:
    """The rate; runs of a user's training may take minutes each."""
    return f"{speed:,.0f} runs/s" if speed >= 2 else f"{60 * speed:,.3g} runs/min"
