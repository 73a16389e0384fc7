"""The contract test of executors, and a player to try them with."""

from __future__ import annotations

from typing import final

from dpaudit.executors import Executor, Lost, Notify, Player, PlayTile
from dpaudit.testing._requiring import requiring

_require = requiring("executor")


@final
class Squares(Player):
    """Squares tile numbers. Tile 13 raises `ArithmeticError`; tile 7 sends a notice, too."""

    def open(self) -> PlayTile:
        """Nothing is shared between tiles."""
        return _square


def check_executor(executor: Executor) -> None:
    """Raise `AssertionError` where ``executor`` breaks the contract.

    See also: `dpaudit.executors.Executor`.

    Arguments:
        executor: The executor to check, with at least one worker.

    Example:
        >>> from dpaudit.executors import InProcess
        >>> check_executor(InProcess())
    """
    notices: list[str] = []
    tiles = [9, 2, 7, 0, 5]
    results = list(executor.play(Squares(), tiles, notices.append))
    _require(not any(isinstance(result, Lost) for _, result in results), "tiles were lost", results)
    _require(
        sorted(results) == sorted((tile, tile**2) for tile in tiles),
        "each tile must be played exactly once and keep its result, got",
        results,
    )
    _require(notices.count("seven") == 1, "a notice must arrive once, got", notices)
    _require(list(executor.play(Squares(), [], notices.append)) == [], "no tiles, no results")
    try:
        list(executor.play(Squares(), [1, 13], notices.append))
    except ArithmeticError as error:
        _require("thirteen" in str(error), "the player's error must keep its text, got", error)
    else:
        raise AssertionError("executor breaks the contract: the player's exception is not raised")
    played = executor.play(Squares(), tiles, notices.append)
    next(played)
    played.close()  # type: ignore[attr-defined]


def _square(tile: int, notify: Notify) -> int:
    if tile == 7:
        notify("seven")
    if tile == 13:
        raise ArithmeticError("thirteen cannot be squared here")
    return tile**2
