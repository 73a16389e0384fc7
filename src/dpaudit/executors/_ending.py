"""Ending a process together with all that it started, also in process groups of their own.

Linux only: elsewhere `adopt_orphans` and `kill_descendants` do nothing, and only the process group
of a worker is killed.

As a script, with the number of an open pipe and the words of a command, it runs the command and
ends with its exit code. When the command ends, or the other end of the pipe closes, it kills all
that the command has started. It imports nothing of dpaudit, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # of prctl
_ROUNDS = 20  # a process may start another one while it is looked for


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(process: int) -> None:
    """Kill all processes that a process, or one of those, has started; not the process itself."""
    for _ in range(_ROUNDS):
        descendants = _descendants(process)
        if not descendants:
            return
        for descendant in descendants:
            with contextlib.suppress(OSError):
                os.kill(descendant, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """The processes below a process that have not ended."""
    descendants, waiting = list[int](), [process]
    while waiting:
        parent = waiting.pop()
        try:
            threads = list(Path(f"/proc/{parent}/task").iterdir())
        except OSError:  # it has ended, or there is no /proc
            continue
        for thread in threads:
            with contextlib.suppress(OSError):
                waiting += map(int, (thread / "children").read_text().split())
        if parent != process and not _is_zombie(parent):
            descendants.append(parent)
    return descendants


def _is_zombie(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "ZX"


def _supervise(held: int, words: list[str]) -> None:
    adopt_orphans()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.execvp(words[0], words)
    ends = [os.pidfd_open(child)] if hasattr(os, "pidfd_open") else []
    while True:
        ready, _, _ = select.select([held, *ends], [], [], None if ends else 0.05)
        if held in ready:
            kill_descendants(os.getpid())
            os.killpg(0, signal.SIGKILL)  # where there is no /proc; this process, too
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            kill_descendants(os.getpid())
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _supervise(int(sys.argv[1]), sys.argv[2:])
