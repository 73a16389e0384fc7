"""The interface between a game and the machines that play it."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

from dpaudit.errors import InvalidInput

Notify = Callable[[str], None]
"""Receives one line of text for the user."""

PlayTile = Callable[[int, Notify], Any]
"""From the number of a tile to its result; a pure function of the player and the number."""


class Player(ABC):
    """Plays tiles. It can be pickled, so that other processes and machines can play them."""

    @abstractmethod
    def open(self) -> PlayTile:
        """Set up what all tiles share, such as compiled code; called once in each process."""


def check_pickles(player: Player) -> bytes:
    """The player as another process can read it; `InvalidInput` where it cannot."""
    try:
        return pickle.dumps(player)
    except Exception as error:  # pickle raises whatever the object's own code raises
        raise InvalidInput(
            "several workers need functions and objects that can be pickled: those of a module, "
            f"not lambdas or functions within functions ({error}); or use workers=1"
        ) from None


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Let the system kill this process after some seconds, also where Python code cannot run."""
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


IN_WORKER = threading.Event()
"""Set in the worker processes of `LocalProcesses`."""


def refuse_in_worker() -> None:
    """Raise where a worker, importing the user's script, is about to start the audit again."""
    if IN_WORKER.is_set():
        raise InvalidInput(
            "the script starts an audit when it is imported, and worker processes import it: put "
            "the call under if __name__ == '__main__':"
        )


@final
@dataclass(frozen=True, kw_only=True)
class Lost:
    """The result of a tile whose worker died or exceeded its time limit in every attempt."""

    reason: str  # what happened to the last worker, in one line
    attempts: int


@final
@dataclass(kw_only=True)
class Status:
    """What an executor is doing now, for progress displays."""

    workers: int = 1  # tiles that can be played at the same time
    in_flight: int = 0  # tiles that are being played or wait for a worker
    retries: int = 0
    lost_nodes: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the machines of an executor can play, asked before a game is cut into tiles."""

    tiles: int  # that can be played at the same time
    device: str | None = None  # "cpu" or "cuda" of other machines; None: those of this machine


class Executor(ABC):
    """Plays tiles in some order, on one machine or on many. Results do not depend on it.

    See also: `dpaudit.testing.check_executor`, the contract test.
    """

    label = ""
    """Identity of the audit; executors that keep files name them by it."""

    immediate = True
    """Whether a tile starts soon. If not, `dpaudit.plan` takes its times on this machine."""

    def __init__(self) -> None:
        self.status = Status()

    def __enter__(self) -> Self:
        """Use the executor for several calls of `play`, between which it may keep workers."""
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027 - not every executor keeps some
        """End the workers that it has kept."""

    def capacity(self) -> Capacity:
        """What the machines can play, as far as it is known."""
        return Capacity(tiles=self.status.workers)

    @abstractmethod
    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Play each of ``tiles`` once; yield its number and result as soon as it is finished.

        The result of a tile that no worker survived is `Lost`. An exception that the player raises
        ends the iteration. Closing the iterator stops all workers.

        Arguments:
            player: Plays the tiles.
            tiles: Numbers of the tiles.
            notify: Called with each line of text for the user, in this process.
        """


@final
class InProcess(Executor):
    """Plays every tile in this process. What kills a tile's process ends the audit, too.

    Example:
        >>> from dpaudit.testing.executors import Squares
        >>> list(InProcess().play(Squares(), [3, 5], print))
        [(3, 9), (5, 25)]
    """

    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Play the tiles in the given order."""
        play_tile = player.open()
        for tile in tiles:
            yield tile, play_tile(tile, notify)


@final
class Attempts:
    """Decides whether a tile whose worker died is played again: it is tried ``most`` times."""

    def __init__(self, most: int, status: Status, notify: Notify) -> None:
        self._most, self._status, self._notify = most, status, notify
        self._failed = Counter[int]()

    def failed(self, tile: int, reason: str) -> Lost | None:
        """The result after the last attempt; `None` if the tile is to be played again."""
        self._failed[tile] += 1
        if self._failed[tile] == self._most:
            return Lost(reason=reason, attempts=self._most)
        self._status.retries += 1
        self._notify(f"tile {tile}: {reason}; it is played again")
        return None
