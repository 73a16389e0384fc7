"""Commands call a user's training in a process of its own.

What it prints cannot be taken for a verdict there, and its end cannot end the command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

from dpaudit.errors import TrainingFailed
from dpaudit.executors import Executor, LocalProcesses, Lost, Player, PlayTile

Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class _Call(Player):
    call: Callable[[], object]

    def open(self) -> PlayTile:
        return lambda tile, notify: self.call()


def in_child(training: str, call: Callable[[], Result]) -> Result:
    """What a call returns, which can be pickled and imports the user's training."""
    ((_, returned),) = _executor().play(_Call(call), [0], lambda text: None)
    if isinstance(returned, Lost):
        raise TrainingFailed(f"{training} ended its process: {returned.reason}")
    result: Result = returned
    return result


def _executor() -> Executor:
    return LocalProcesses(workers=1, attempts=1)
