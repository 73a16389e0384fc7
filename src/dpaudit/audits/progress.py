"""Progress of an audit, for people and for programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self, final

from dpaudit.executors import Status


class Progress(ABC):
    """Receives the progress of an audit; a context manager around the playing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @abstractmethod
    def begin(self, *, runs: int, done: int) -> None:
        """Playing begins: the number of runs, and how many of them are in the store already."""

    @abstractmethod
    def advance(self, runs: int) -> None:
        """More runs are done."""

    @abstractmethod
    def bound(self, epsilon: float) -> None:
        """The lower bound so far."""

    @abstractmethod
    def notice(self, text: str) -> None:
        """A remark for the user."""

    def watch(self, status: Status) -> None:  # noqa: B027 - most displays do not show it
        """The executor's status, which changes while it plays."""

    @abstractmethod
    def stop(self) -> None:
        """Playing has ended, with or without an error."""

    @property
    @abstractmethod
    def wants_bounds(self) -> bool:
        """Whether the bound so far should be computed."""


@final
class Silent(Progress):
    """Shows nothing."""

    def begin(self, *, runs: int, done: int) -> None:
        pass

    def advance(self, runs: int) -> None:
        pass

    def bound(self, epsilon: float) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass

    @property
    def wants_bounds(self) -> bool:
        return False


@final
class Bar(Progress):
    """A progress bar on standard error: runs done, rate, time left, bound so far, and workers.

    The workers' part has tiles in flight, retries and lost machines.

    If standard error is not a terminal, only notices are printed.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self.runs = self.done = 0
        self._bar: Any = None
        self._task: Any = None
        self._status: Status | None = None

    def begin(self, *, runs: int, done: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.runs, self.done = runs, done
        if not self._console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} runs"),
            BarColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[found]}"),
            TextColumn("{task.fields[status]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("runs", total=runs, rate="", found="", status="")
        self._bar.start()
        # Runs from the store took no time, so they do not count in the rate.
        self._bar.reset(self._task, completed=done, total=runs)

    def advance(self, runs: int) -> None:
        self.done += runs
        if self._bar is None:
            return
        self._bar.advance(self._task, runs)
        speed = self._bar.tasks[0].speed
        status = "" if self._status is None else status_text(self._status)
        self._bar.update(self._task, rate=_rate(speed) if speed else "", status=status)

    def watch(self, status: Status) -> None:
        self._status = status

    def bound(self, epsilon: float) -> None:
        if self._bar is not None:
            self._bar.update(self._task, found=f"epsilon >= {epsilon:.2f} so far")

    def notice(self, text: str) -> None:
        self._console.print(f"dpaudit: {text}", markup=False, soft_wrap=True)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @property
    def wants_bounds(self) -> bool:
        return self._bar is not None


def status_text(status: Status) -> str:
    """The status of an executor in a few words.

    Example:
        >>> status_text(Status(workers=8, in_flight=18, retries=1))
        '8 workers, 18 tiles in flight, 1 retry'
    """

    def counted(count: int, one: str, many: str) -> str:
        return f"{count:,} {one if count == 1 else many}"

    parts = [
        counted(status.workers, "worker", "workers"),
        counted(status.in_flight, "tile in flight", "tiles in flight"),
    ]
    if status.retries:
        parts.append(counted(status.retries, "retry", "retries"))
    if status.lost_nodes:
        parts.append(counted(status.lost_nodes, "machine lost", "machines lost"))
    return ", ".join(parts)


def _rate(speed: float) -> str:
    """The rate; runs of a user's training may take minutes each."""
    return f"{speed:,.0f} runs/s" if speed >= 2 else f"{60 * speed:,.3g} runs/min"
