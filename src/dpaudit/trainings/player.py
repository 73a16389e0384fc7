"""The runs of a user's training as tiles of an executor: the number of a tile is that of a run.

Three tiles with negative numbers come before the runs. They look at the training where it runs, so
that the process of an audit imports no code of a user who gives it by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from dpaudit.executors import Executor, InProcess, Notify, Player, PlayTile
from dpaudit.trainings.canary import CraftedCanary
from dpaudit.trainings.identity import CodeDigest, code_digest, name_of
from dpaudit.trainings.importing import canary_beside, loaded
from dpaudit.trainings.probe import check_function, probe
from dpaudit.trainings.run import Job
from dpaudit.trainings.scoring import Scorer

DESCRIBE, CHECK, PROBE = -1, -2, -3
"""The tiles before the runs: a `TrainingFacts`, the broken rules, and a `Liveness` as a dict."""

ATTEMPTS = 2
"""A training that ends its process is tried once more: something else may have ended it."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """What an audit has to know of a training before its first run."""

    name: str
    adversary: str
    code: CodeDigest
    canaries: int
    names: tuple[str, ...]
    unit: str
    records: int
    crafted: bool


@final
@dataclass(frozen=True, kw_only=True)
class TrainingPlayer(Player):
    """Plays runs of a training, which is imported where they are played if it is `Named`."""

    train: Any
    canary: Any = None
    adversary: Any = None
    initial: Any = None
    seed: int = 0
    code: CodeDigest | None = None
    runs: tuple[int, ...] = ()
    check: Callable[[Any, Any, Notify], tuple[str, ...]] | None = None

    def open(self) -> PlayTile:
        """Import the training, and compare its code. The runs share nothing else."""
        train, adversary = loaded(self.train), loaded(self.adversary)
        canary = canary_beside(train) if self.canary is None else loaded(self.canary)
        check_function(train, canary)
        adversary = adversary() if isinstance(adversary, type) else adversary
        scorer = Scorer(canary=canary, adversary=adversary, initial=self.initial)
        job = Job(train=train, scorer=scorer, seed=self.seed)
        held = {"canary": canary, "initial": scorer.initial}  # what decides the scores, too
        if callable(adversary):
            held["adversary"] = adversary
        here = self.code and self.code.require_here(train, **held)

        def play(tile: int, notify: Notify) -> Any:
            if tile == DESCRIBE:
                return TrainingFacts(
                    name=name_of(train),
                    adversary=name_of(adversary) if callable(adversary) else adversary or "",
                    code=code_digest(train, **held),
                    canaries=scorer.canaries,
                    names=tuple(canary.names) if isinstance(canary, CraftedCanary) else (),
                    unit=getattr(canary, "unit", "record"),
                    records=getattr(canary, "records", 1),
                    crafted=isinstance(canary, CraftedCanary),
                )
            if tile == CHECK:
                return self.check(train, canary, notify)  # type: ignore[misc]
            # Plain data and tiles, because jobs elsewhere write them to a file.
            result = vars(probe(job, self.runs)) if tile == PROBE else job.play(tile)
            if here is not None:
                here.require_unedited()
            return result

        return play


def executor_of(workers: int, *, timeout: float | None = None, isolated: bool = False) -> Executor:
    """The executor for a number of workers.

    Each has one thread, unless ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` or the training itself
    asks for more: threads of a small training that wait for each other on a busy machine take ten
    times the CPU time.
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
