"""Playing the game of an audit: thousands of trainings at once, cut into tiles."""

from dpaudit.games.budget import settle
from dpaudit.games.game import Coin, Game
from dpaudit.games.game_check import check_game
from dpaudit.games.tiles import play, play_tile, tile_count

__all__ = ["Coin", "Game", "check_game", "play", "play_tile", "settle", "tile_count"]
