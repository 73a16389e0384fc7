"""What every call of an audit shares: its store, its notices, and the result at its end."""

from __future__ import annotations

import os
import platform
import time
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from dpaudit._version import __version__
from dpaudit.audits.progress import Progress, default_progress
from dpaudit.audits.result import AuditResult
from dpaudit.audits.stored import read_result
from dpaudit.errors import DpauditError
from dpaudit.scores import AuditRecord, Store

StorePath = str | os.PathLike[str]


def open_store(store: Store | StorePath | None) -> Store | nullcontext[Store]:
    """The store as a context; a store that the user opened stays open."""
    if isinstance(store, Store):
        return nullcontext(store)
    return Store.open(":memory:" if store is None else store)


def versions(device: str, *further: str) -> dict[str, str]:
    """Versions of the software, and the device, of this session.

    Arguments:
        device: The device used.
        further: Names of further modules whose versions are kept.
    """
    modules = {name: import_module(name).__version__ for name in ("numpy", *further)}
    python = platform.python_version()
    return {"dpaudit": __version__, "python": python, **modules, "device": device}


def finished(record: AuditRecord, *, began: float, **known: Any) -> AuditResult:
    """Read the result of a record whose runs are done, and mark the audit as finished."""
    result = read_result(record, seconds=time.perf_counter() - began, **known)
    if not result.finished:  # no verdict while runs have neither a score nor a failure
        raise DpauditError(
            f"{result.runs:,} of {result.asked:,} runs have a score or a recorded failure; repeat "
            "the same call to play the others"
        )
    # Only doubts of the first runs are kept: those about scores and failures are found by reading.
    doubts = (record.summary or {}).get("doubts", [])
    record.finish({**result.stored(), "doubts": doubts})
    return result


class Notices:
    """Passes notices to the progress callback, each once, and remembers them."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = default_progress() if progress is None else progress
        self._seen: dict[str, None] = {}

    def __enter__(self) -> Notices:
        self.progress.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self.progress.__exit__(*details)

    @property
    def seen(self) -> tuple[str, ...]:
        return tuple(self._seen)

    def notify(self, text: str) -> None:
        """Pass one line on, unless it was passed before."""
        if text not in self._seen:
            self._seen[text] = None
            self.progress.notice(text)
