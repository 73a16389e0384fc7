"""Executors schedule the tiles of a game. They do not know what a tile computes.

Another package adds an executor with an entry point in the group ``dpaudit.executors``.
"""

from dpaudit._registry import Registry
from dpaudit.executors._worker import refuse_in_worker
from dpaudit.executors.base import Capacity, Executor, Lost, Notify, Player, PlayTile, Status
from dpaudit.executors.in_process import InProcess
from dpaudit.executors.local_processes import LocalProcesses, check_pickles

EXECUTORS: Registry[type[Executor]] = Registry(
    "executor",
    "dpaudit.executors",
    {
        "in-process": "dpaudit.executors.in_process:InProcess",
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
