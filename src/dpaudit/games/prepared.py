"""A game that is ready to play: checked once, and with every choice of speed made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

from dpaudit import _validate
from dpaudit.engine.checking import Checked
from dpaudit.engine.speed import Speed
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity
from dpaudit.games.budget import Cost, cost, settle
from dpaudit.games.game import Game
from dpaudit.games.game_check import check_game


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A checked game with its settled speed: all that is needed to play any of its tiles.

    See also: `prepare`, which makes it.

    Arguments:
        game: The game.
        speed: The settled speed: device, tile size, workers and compilation are all chosen.
        checked: The result of checking the mechanism.
        cost: The estimated cost of one run.
    """

    game: Game
    speed: Speed
    checked: Checked
    cost: Cost

    @property
    def tile_size(self) -> int:
        """Runs in every tile but the last, which may have fewer."""
        if self.speed.tile_size is None:
            raise InvalidInput("tile_size must be chosen before playing, got None; use prepare")
        return self.speed.tile_size

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return math.ceil(self.game.runs / self.tile_size)

    def runs_of(self, tile: int) -> range:
        """The numbers of the runs in one tile."""
        if not 0 <= _validate.integer("tile", tile) < self.tiles:
            raise InvalidInput(f"tile must be from 0 to {self.tiles - 1}, got {tile}")
        first = tile * self.tile_size
        return range(first, min(first + self.tile_size, self.game.runs))

    def at(self, speed: Speed) -> Prepared:
        """The same game at another settled speed, for example the one of a stored audit."""
        return replace(self, speed=speed)


def prepare(game: Game, speed: Speed | None = None, capacity: Capacity | None = None) -> Prepared:
    """Check a game and settle its speed. Call this once per game, before playing it.

    Raises `InvalidInput` or `UnsupportedModel` if the game cannot be played as described.

    Arguments:
        game: The game to play.
        speed: Speed settings; choices left open are made from the model, the number of runs and
            the free memory.
        capacity: What the machines of an executor can play; by default this machine plays.
    """
    speed = Speed() if speed is None else speed
    checked = check_game(game)
    price = cost(game, checked, speed)
    settled = settle(game, speed, price, capacity)
    return Prepared(game=game, speed=settled, checked=checked, cost=price)
