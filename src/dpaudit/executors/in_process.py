"""Tiles played one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

from dpaudit.executors.base import Executor, Notify, Player


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
