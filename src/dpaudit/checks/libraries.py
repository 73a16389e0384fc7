"""Libraries with a known, documented weakness that a check should explain, not report as a bug."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dpaudit._registry import Registry


class Library(Protocol):
    """A library as it is published."""

    infinite_gradients: str
    """What its own clipping does with an infinite gradient, and the remedy; empty if nothing."""

    def watching(self) -> AbstractContextManager[list[str]]:
        """Collect the calls of the library's own clipping inside the block."""


LIBRARIES: Registry[Library] = Registry(
    "library",
    "dpaudit.checks.libraries",
    {"opacus": "dpaudit.checks.stock_opacus:STOCK"},
)
"""Libraries by the name of their top-level module."""


def known_weakness(call: Callable[[], Any]) -> str:
    """What is known of the library whose own clipping ``call`` uses; empty if there is none."""
    for name in LIBRARIES:
        if name not in sys.modules:
            continue
        library = LIBRARIES[name]
        with library.watching() as calls:
            call()
        if calls:
            return library.infinite_gradients
    return ""
