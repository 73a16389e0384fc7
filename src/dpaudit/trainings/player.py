"""The runs of a user's training as tiles of an executor: the number of a tile is that of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, final

from dpaudit.executors import Executor, InProcess, LocalProcesses, Notify, Player, PlayTile
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
    """The executor for a number of workers, which share the cores of this machine.

    Arguments:
        workers: Number of trainings at the same time.
        timeout: Seconds after which a training is stopped.
        isolated: Use another process also for a single worker.
    """
    if workers == 1 and timeout is None and not isolated:
        return InProcess()
    share = str(max(1, (os.cpu_count() or 1) // workers))
    threads = {name: os.environ.get(name, share) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return LocalProcesses(workers=workers, environment=threads, timeout=timeout, attempts=ATTEMPTS)
