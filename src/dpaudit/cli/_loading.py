"""What a command does while it imports its modules."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

COMPLETING = "_DPAUDIT_COMPLETE"  # set by the shell's completion script


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show on a terminal that the imports of a command run; they can take a second."""
    visible = sys.stderr is not None and sys.stderr.isatty() and COMPLETING not in os.environ
    if visible:
        print("loading", end="", file=sys.stderr, flush=True)
    try:
        with uncollected():
            yield
    finally:
        if visible:
            print("\r       \r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Import without garbage collection, which would visit all modules again and again.

    If something was imported, later collections leave out what exists at the end, because modules
    are never garbage. This saves an eighth of the processor time of the default audit.
    """
    enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if enabled:
            gc.enable()
