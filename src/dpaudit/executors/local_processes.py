"""Tiles played by several processes of this machine."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self, final

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.executors._ending import kill_descendants
from dpaudit.executors._worker import Setup
from dpaudit.executors.base import Attempts, Capacity, Executor, Notify, Player, check_pickles

_POLL = 1.0
"""Seconds after which a worker that ended without closing its socket is noticed."""

_SETUP_SECONDS = 120.0
"""A worker may take this long to import what it needs, even where a tile may take less."""

_SOURCE = str(Path(__file__).parents[2])
_START = (
    "import sys; sys.path.append({source!r}); "
    "from dpaudit.executors._worker import serve; serve({descriptor})"
)


@final
class LocalProcesses(Executor):
    """Plays tiles in processes of this machine, and replaces those that die.

    A worker that is killed, crashes or exits is replaced, and its tile is played again. Workers,
    and all processes that they start, end together with this process, however it ends. As a context
    manager it keeps its workers, with all that they have imported, from one call of `play` to the
    next.

    Arguments:
        workers: Number of processes.
        environment: Environment variables of the workers, beside those of this process.
        timeout: Seconds after which a tile's worker is killed; none by default.
        attempts: Number of times that a tile is tried before its result is `Lost`.
        gpus: Values of ``CUDA_VISIBLE_DEVICES``, given to the workers in turn; by default all
            workers see all GPUs.

    Example:
        >>> from dpaudit.testing.executors import Squares
        >>> sorted(LocalProcesses(workers=2).play(Squares(), [3, 5], print))
        [(3, 9), (5, 25)]
    """

    def __init__(
        self,
        *,
        workers: int,
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        gpus: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._workers = _validate.integer("workers", workers, at_least=1)
        self._attempts = _validate.integer("attempts", attempts, at_least=1)
        self._timeout = None if timeout is None else _validate.positive("timeout", timeout)
        self._environment, self._gpus = dict(environment or {}), tuple(gpus)
        self._kept: list[_Worker] | None = None

    def __enter__(self) -> Self:
        """Keep workers between calls of `play`, and start all of them with the first one."""
        self._kept = [self._worker(number) for number in range(self._workers)]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._kept or ():
            worker.end()
        self._kept = None

    def capacity(self) -> Capacity:
        """The number of workers."""
        return Capacity(tiles=self._workers)

    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Play the tiles in as many processes as there are workers, or tiles if those are fewer."""
        setup = pickle.dumps(Setup.of(check_pickles(player)))
        return self._play(setup, deque(tiles), notify)

    def _play(self, setup: bytes, waiting: deque[int], notify: Notify) -> Iterator[tuple[int, Any]]:
        missing, unready = len(waiting), 0
        attempts = Attempts(self._attempts, self.status, notify)
        new = [] if self._kept else [self._worker(n) for n in range(min(self._workers, missing))]
        team = self._kept or new

        def busy_again(worker: _Worker) -> None:
            if waiting:
                worker.play(waiting.popleft())

        with contextlib.ExitStack() as stack:
            for worker in team:
                stack.callback(worker.end_if_busy if self._kept else worker.end)
                worker.prepare(setup)
                busy_again(worker)
            self.status.workers = len(team)
            while missing:
                self.status.in_flight = sum(worker.busy for worker in team)
                for worker in _with_news(team):
                    tile = worker.tile
                    match worker.message():
                        case "ready", _:
                            unready = 0
                        case "notice", text:
                            notify(text)
                        case "error", error:
                            raise error
                        case "result", result:
                            busy_again(worker)  # before the result is looked at
                            missing -= 1
                            yield tile, result
                        case "ended", how:
                            unready += not worker.ready
                            if unready > self._attempts:
                                raise DpauditError(
                                    f"worker processes {how} before they could play a tile; use "
                                    "workers=1 to see the cause"
                                )
                            lost = attempts.failed(tile, f"its worker {how}")
                            if lost is None:
                                waiting.appendleft(tile)
                            busy_again(worker)
                            if lost is not None:
                                missing -= 1
                                yield tile, lost

    def _worker(self, number: int) -> _Worker:
        gpus = self._gpus
        own = {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}
        return _Worker({**self._environment, **own}, self._timeout)


@final
class _Worker:
    """A process that is started for its first player, and again for a tile if it has ended."""

    def __init__(self, environment: Mapping[str, str], timeout: float | None) -> None:
        self._setup, self._environment = b"", {**os.environ, **environment}
        self._timeout = math.inf if timeout is None else timeout
        self._process: subprocess.Popen[bytes] | None = None
        self.tile, self.busy, self.ready, self.deadline = 0, False, False, math.inf

    def prepare(self, setup: bytes) -> None:
        """Give the worker the player of its next tiles; it imports what that needs."""
        self._setup, self.ready = setup, False
        if self._process is None:
            self._start()
        self._send(setup)

    def play(self, tile: int) -> None:
        """Give the worker its next tile."""
        self.tile, self.busy = tile, True
        if self._process is None:
            self.prepare(self._setup)
        self._send(pickle.dumps(tile))
        limit = self._timeout if self.ready else max(self._timeout, _SETUP_SECONDS)
        self.deadline = time.monotonic() + limit

    def _send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # a worker that has just died: message() reports it
            self.connection.send_bytes(content)

    def message(self) -> tuple[str, Any]:
        """The next message, or ``"ended"`` and how the process ended."""
        try:
            if not self.connection.poll() and time.monotonic() > self.deadline:
                self.end()
                return "ended", f"was killed at the time limit of {self._timeout:g} s"
            if not self.connection.poll() and self.ended:
                return "ended", self._last_words()
            kind, content = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return "ended", self._last_words()
        if kind == "result":
            self.busy = False
        if kind == "ready":
            self.ready, self.deadline = True, time.monotonic() + self._timeout
        return kind, content

    @property
    def ended(self) -> bool:
        """Whether the process is gone, although a process that it started may have its socket."""
        return self._process is None or self._process.poll() is not None

    def end_if_busy(self) -> None:
        """Kill a process whose tile nobody waits for any more."""
        if self.busy:
            self.end()

    def end(self) -> int:
        """Kill the process and all processes that it started; give its exit code."""
        process, self._process, self.busy = self._process, None, False
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGSTOP)  # it starts no further ones
        kill_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self.connection.close()
        return process.wait()

    def _start(self) -> None:
        try:
            self.connection, theirs = Pipe()
            start = _START.format(source=_SOURCE, descriptor=theirs.fileno())
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", start],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # the worker replaces it by its standard error
                    env=self._environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # a process group; no terminal to ask for a password
                )
        except OSError as error:  # too many open files, processes, or no memory
            raise InvalidInput(
                f"cannot start another worker process: {error.strerror}; use fewer workers "
                "(--workers), or raise the limits of your shell (ulimit -n, ulimit -u)"
            ) from error

    def _last_words(self) -> str:
        """How the process ended by itself."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)  # its socket closes a moment before it ends
        code = self.end()
        if code >= 0:
            return f"ended with exit code {code}"
        hint = " (perhaps out of memory)" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"


def _with_news(team: Sequence[_Worker]) -> Iterator[_Worker]:
    """Wait until busy workers have sent something, have ended or are overdue; give those."""
    busy = [worker for worker in team if worker.busy]
    patience = min(worker.deadline for worker in busy) - time.monotonic()
    ready = wait([worker.connection for worker in busy], timeout=max(0.0, min(_POLL, patience)))
    for worker in busy:
        if worker.connection in ready or worker.ended or time.monotonic() > worker.deadline:
            yield worker
