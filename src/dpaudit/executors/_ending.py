"""Ending a process together with all that it started, also in process groups of their own.

Linux only: elsewhere `adopt_orphans` and `kill_descendants` do nothing, and only the process group
of a worker is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
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
        found = _descendants(process)
        if not found:
            return
        for descendant in found:
            with contextlib.suppress(OSError):
                os.kill(descendant, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """The processes below a process that have not ended."""
    found, waiting = list[int](), [process]
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
            found.append(parent)
    return found


def _is_zombie(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "ZX"
