"""Progress of an audit, for people and for programs."""

from __future__ import annotations

import sys
from typing import Self, final

from dpaudit.executors import Status


class Progress:
    """Receives the progress of an audit; a context manager around the playing.

    Every method does nothing here: a subclass implements those that it shows.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def begin(self, *, runs: int, done: int) -> None:
        """Playing begins: the number of runs, and how many of them are in the store already."""

    def advance(self, runs: int) -> None:
        """More runs are done."""

    def notice(self, text: str) -> None:
        """A remark for the user."""

    def stage(self, name: str) -> None:
        """A stage begins, such as crafting, compiling and training, or bounds."""

    def watch(self, status: Status) -> None:
        """The executor's status, which changes while it plays."""

    def stop(self) -> None:
        """Playing has ended, with or without an error."""


@final
class Silent(Progress):
    """Shows nothing."""


def default_progress() -> Progress:
    """A bar in notebooks, where audits are started by hand; nothing elsewhere."""
    if not in_notebook():
        return Silent()
    from dpaudit.audits.bar import Bar

    return Bar()


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this process."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
