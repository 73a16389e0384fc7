"""The runs of a user's training as tiles of an executor: the number of a tile is that of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, final

from dpaudit.executors import Executor, InProcess, Notify, Player, PlayTile
from dpaudit.trainings.identity import CodeDigest
from dpaudit.trainings.probe import probe
from dpaudit.trainings.run import Job

PROBE = -1
"""The tile that checks the training before all others; its result is that of `Liveness.to_dict`."""

ATTEMPTS = 2
"""A training that ends its process is tried once more: something else may have ended it."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingPlayer(Player):
    """Plays runs of a job.

    Arguments:
        job: The training, its adversary and its seed.
        runs: Numbers of the runs with which the probe begins.
        code: The digest of the training where the audit started; every process that plays runs
            computes its own, and refuses to play if they differ.
    """

    job: Job
    runs: tuple[int, ...] = ()
    code: CodeDigest | None = None

    def open(self) -> PlayTile:
        """The runs share nothing but their code."""
        here = self.code and self.code.require_here(self.job.train, **self.job.held)

        def play(tile: int, notify: Notify) -> Any:
            # Plain data, because jobs elsewhere write it to a file.
            shown = probe(self.job, self.runs).to_dict() if tile == PROBE else None
            result = self.job.play(tile) if shown is None else shown
            if here is not None:
                here.require_unedited()
            return result

        return play


def executor_of(workers: int, *, timeout: float | None = None, isolated: bool = False) -> Executor:
    """The executor for a number of workers.

    Each has one thread, unless ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` or the training itself
    asks for more: threads of a small training that wait for each other on a busy machine take ten
    times the CPU time.

    Arguments:
        workers: Number of trainings at the same time.
        timeout: Seconds after which a training is stopped.
        isolated: Use another process also for a single worker.
    """
    if workers == 1 and timeout is None and not isolated:
        return InProcess()
    from dpaudit.executors import LocalProcesses

    threads = os.environ.get("OMP_NUM_THREADS", "1")
    environment = {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": os.environ.get("MKL_NUM_THREADS", threads),
    }
    return LocalProcesses(
        workers=workers, environment=environment, timeout=timeout, attempts=ATTEMPTS
    )
