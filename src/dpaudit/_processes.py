"""Processes that play for an audit: told what to do, and answering, over their standard streams.

Processes of our own rather than `multiprocessing`: those would run the user's script once more in
every worker unless it is guarded, or fork a process that has threads. A worker here ends when the
audit that started it does, even by ``kill -9``, because its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any, final


@final
class Worker:
    """A process that runs ``serve()`` of a module, to be used as a context manager.

    Arguments:
        module: Where its ``serve`` is, by name.
        environment: What its environment has beside our own.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def tell(self, *contents: object) -> None:
        """Send the worker something, or several things one by one."""
        if self._process.stdin is None:  # pragma: no cover - for mypy
            raise OSError("no pipe")
        for content in contents:
            send(self._process.stdin, content)

    def hear(self) -> Any:
        """Wait for its next answer; `EOFError` where it ended without one."""
        if self._process.stdout is None:  # pragma: no cover - for mypy
            raise OSError("no pipe")
        return receive(self._process.stdout)

    def exit_code(self) -> int | None:
        """How it ended, where it did."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=5)  # its pipe ends a moment before it does
        return None


def drain(waiting: queue.SimpleQueue[int]) -> Iterator[int]:
    """What is waiting, shared with other threads that drain the same queue."""
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """In a worker: where it is told things, and where it answers."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the user's code prints must not end up among the answers
    return source, sink


def send(pipe: IO[bytes], content: object) -> None:
    """Write one pickle, its length first."""
    data = pickle.dumps(content)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read what `send` wrote; `EOFError` where nothing more comes."""
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(size, "little")))
