"""Executors schedule the tiles of a game. They do not know what a tile computes.

Another package adds an executor with an entry point in the group ``dpaudit.executors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use
from dpaudit._registry import Registry
from dpaudit.executors.base import (
    Capacity,
    Executor,
    InProcess,
    Lost,
    Notify,
    Player,
    PlayTile,
    Status,
    check_pickles,
    refuse_in_worker,
)

if TYPE_CHECKING:
    from dpaudit.executors.local_processes import LocalProcesses

EXECUTORS: Registry[type[Executor]] = Registry(
    "executor",
    "dpaudit.executors",
    {
        "in-process": "dpaudit.executors.base:InProcess",
        "local": "dpaudit.executors.local_processes:LocalProcesses",
        "ray": "dpaudit.executors.ray_tasks:RayTasks",
        "slurm": "dpaudit.executors.slurm_array:SlurmArray",
    },
)

__all__ = [
    "EXECUTORS",
    "Capacity",
    "Executor",
    "InProcess",
    "LocalProcesses",
    "Lost",
    "Notify",
    "PlayTile",
    "Player",
    "Status",
    "check_pickles",
    "refuse_in_worker",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(__name__, {"local_processes": "LocalProcesses"})
