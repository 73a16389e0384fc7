"""Importing many modules at once, and importing late."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any


@contextlib.contextmanager
def uncollected(*, freeze: bool = True) -> Iterator[None]:
    """Import without garbage collection, which would visit all modules again and again.

    If something was imported, later collections leave out what exists at the end, because modules
    are never garbage. This saves an eighth of the processor time of the default audit. Modules with
    objects that must end before them need those collections: ``freeze=False``.
    """
    enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if freeze and len(sys.modules) > modules:
            gc.freeze()
        if enabled:
            gc.enable()


def on_first_use(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that imports its public names on first use.

    Arguments:
        package: Name of the package.
        homes: The public names in each module of the package, separated by spaces.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return find, names
