"""Playing the game of an audit: thousands of trainings at once, cut into tiles."""

from dpaudit.games.budget import settle
from dpaudit.games.check import Checked, check_game, check_mechanism
from dpaudit.games.game import Coin, Game
from dpaudit.games.simulate import Simulated, simulate
from dpaudit.games.speed import Precision, Speed
from dpaudit.games.tiles import play, play_tile, tile_count

__all__ = [
    "Checked",
    "Coin",
    "Game",
    "Precision",
    "Simulated",
    "Speed",
    "check_game",
    "check_mechanism",
    "play",
    "play_tile",
    "settle",
    "simulate",
    "tile_count",
]
