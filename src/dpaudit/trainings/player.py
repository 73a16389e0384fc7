"""The runs of a user's training as tiles of an executor: the number of a tile is that of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from dpaudit.executors import Executor, InProcess, LocalProcesses, Lost, Player, PlayTile
from dpaudit.scores import Failure
from dpaudit.trainings.playing import Job, Outcome

ATTEMPTS = 2
"""A training that kills its process is tried again once: the process may have been killed."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingPlayer(Player):
    """Plays runs of a job.

    Arguments:
        job: The training, its adversary and its seed.
    """

    job: Job

    def open(self) -> PlayTile:
        """Nothing is shared between runs."""
        return lambda run, notify: self.job.play(run)


def executor_of(workers: int, *, timeout: float | None = None) -> Executor:
    """The executor for a number of workers, which share the cores of this machine."""
    if workers == 1 and timeout is None:
        return InProcess()
    share = str(max(1, (os.cpu_count() or 1) // workers))
    threads = {name: os.environ.get(name, share) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return LocalProcesses(workers=workers, environment=threads, timeout=timeout, attempts=ATTEMPTS)


def outcomes(executor: Executor, job: Job, runs: Sequence[int]) -> Iterator[Outcome]:
    """Play the runs; a run that ended its process in every attempt is a failed one."""
    for run, result in executor.play(TrainingPlayer(job=job), runs, lambda notice: None):
        if isinstance(result, Lost):
            coins = job.coins(run)
            failure = Failure(
                run=run,
                inserted=int(coins.sum()),
                canaries=len(coins),
                error=f"ProcessEnded: {result.reason} ({result.attempts} attempts)",
                traceback="",
            )
            result = Outcome(run=run, failure=failure)
        yield result
