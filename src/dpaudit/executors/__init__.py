"""Executors: who plays the tiles of a game. An executor knows nothing of what a tile computes."""

from dpaudit.executors.base import Executor, Lost, Notify, Player, PlayTile

__all__ = ["Executor", "Lost", "Notify", "PlayTile", "Player"]
