"""The interface between a game and whatever machines play it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

Notify = Callable[[str], None]
"""Receives one line of text that the user should see."""

PlayTile = Callable[[int, Notify], Any]
"""From the number of a tile to its result; a pure function of the player and the number."""


class Player(ABC):
    """Plays tiles. It can be pickled, so that another process or machine can play them too."""

    @abstractmethod
    def open(self) -> PlayTile:
        """Set up what all tiles share, such as compiled code; called once in each process."""


@final
@dataclass(frozen=True, kw_only=True)
class Lost:
    """The result of a tile whose worker died or hung in every attempt.

    Arguments:
        reason: What happened to the workers, in one line.
        attempts: How often the tile was tried.
    """

    reason: str
    attempts: int


class Executor(ABC):
    """Plays tiles in some order, on one machine or on many. Results do not depend on it."""

    @abstractmethod
    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Play each of ``tiles`` once; give its number and result as soon as it is there.

        The result of a tile that no worker survived is `Lost`. An exception that the player
        raises ends the iteration. Closing the iterator stops all workers.
        """
