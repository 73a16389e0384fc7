"""Importing many modules at once."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


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
