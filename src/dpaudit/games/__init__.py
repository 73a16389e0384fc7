"""Playing the game of an audit: thousands of trainings at once, cut into tiles."""

from dpaudit.games.game import Coin, Game
from dpaudit.games.game_check import check_game
from dpaudit.games.tiles import Prepared, TilePlayer, executor_for, play, prepare

__all__ = [
    "Coin",
    "Game",
    "Prepared",
    "TilePlayer",
    "check_game",
    "executor_for",
    "play",
    "prepare",
]
