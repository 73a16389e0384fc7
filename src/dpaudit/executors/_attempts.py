"""How often executors with workers of their own try a tile."""

from __future__ import annotations

from collections import Counter
from typing import final

from dpaudit.executors.base import Lost, Notify, Status


@final
class Attempts:
    """Decides whether a tile whose worker died is played again.

    Arguments:
        most: Number of times that a tile is tried.
        status: Counts the retries.
        notify: Told about each retry.
    """

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
