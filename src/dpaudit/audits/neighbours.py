"""An audit of a record that is added for real: two neighbouring data sets, one function.

The function ``train(data, seed)`` runs the user's whole pipeline, or any mechanism, on one of the
two data sets; a coin decides on which. Nothing is inserted into a step. The runs are those of a
`FunctionGame`; only the pilot, which trains the score, is played here, with seeds of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.audits.function_game import FunctionGame
from dpaudit.audits.identity import sample_seed
from dpaudit.errors import InvalidInput, TrainingFailed
from dpaudit.executors import Lost, Notify, Player, PlayTile
from dpaudit.pipelines.neighbours import Neighbours, copied, neighbours_of
from dpaudit.pipelines.scores import LearnedScore, Released, UpdateLength
from dpaudit.trainings.coins import training_seed
from dpaudit.trainings.identity import name_of
from dpaudit.trainings.importing import loaded
from dpaudit.trainings.player import executor_of
from dpaudit.trainings.scoring import flat_parameters

if TYPE_CHECKING:
    from dpaudit.checks import CheckResult

PILOT = 0.25
"""Share of the runs that train the learned score. They test nothing."""

LEAST_PILOT = 16

_PILOT_PHASE = 2  # phases 0 and 1 are the runs of the audit and those that confirm


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class OnNeighbours:
    """A pipeline as a training of an audit: the coin decides which data set it gets.

    Arguments:
        train: The pipeline.
        neighbours: The data sets.
    """

    train: Callable[[Any, int], Any]
    neighbours: Neighbours

    def __post_init__(self) -> None:
        module, _, name = name_of(self.train).rpartition(":")
        vars(self).update(__module__=module, __qualname__=name)  # as the result names it

    def __call__(self, canary: Any, inserted: Any, seed: int) -> Any:
        data = self.neighbours.second if inserted else self.neighbours.first
        return self.train(copied(data), seed)


def check_of(training: OnNeighbours, canary: Any) -> CheckResult:
    """`dpaudit check --pipeline` of the pair."""
    from dpaudit.pipelines import check_pipeline

    return check_pipeline(training.train, training.neighbours)


def neighbours_game(
    train: Any,
    adversary: Any = None,
    *,
    neighbours: Any,
    initial: Any = None,
    runs: int = 200,
    seed: int = 0,
    until_violation: bool = False,
    workers: int = 1,
    timeout: float | None = None,
    isolated: bool = False,
    capacity: Any = None,
    notify: Notify = lambda text: None,
    accept: Callable[[FunctionGame], object] = lambda game: None,
) -> FunctionGame:
    """The game of a pipeline on two data sets. Plays the pilot, if the score is a learned one.

    Arguments:
        train: ``train(data, seed)``.
        adversary: ``"learned"`` (the default), ``"length"``, or a function of (words, returned).
        neighbours: The pair (D, D1), or a function that returns it.
        initial: The parameters at the start of training, if they are the same in all runs.
        runs: Number of runs, the pilot included.
        seed: Random seed.
        until_violation: Whether the scores are tested as they come.
        workers: Number of processes.
        timeout: Seconds after which a run is stopped.
        isolated: Whether a single worker has a process of its own.
        capacity: Must be `None`: the pilot is played on this machine.
        notify: Called with lines of text.
        accept: Called with the game before the pilot is played; raises if the audit is refused.
    """
    train, adversary = loaded(train), loaded(adversary)
    if not callable(train):
        raise InvalidInput(
            "with neighbours, training must be a function train(data, seed), "
            f"got {_validate.shown(train)}"
        )
    try:
        inspect.signature(train).bind(None, 0)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"with neighbours, the training is called as train(data, seed), but {name_of(train)} "
            f"cannot be: {error}"
        ) from None
    pair = neighbours_of(neighbours)
    training = OnNeighbours(train=train, neighbours=pair)
    start = None if initial is None else flat_parameters(initial)
    runs = _validate.integer("runs", runs, at_least=2)

    def game(score: Any, runs: int) -> FunctionGame:
        made = FunctionGame(
            training,
            score,
            canary=pair.words,
            runs=runs,
            seed=seed,
            until_violation=until_violation,
            workers=workers,
            timeout=timeout,
            isolated=isolated,
            capacity=capacity,
        )
        made.unit, made.records, made.rules = pair.unit, len(pair.extras), check_of
        return made

    length = UpdateLength(initial=start)
    if adversary is None or adversary == "learned":
        pilot = max(LEAST_PILOT, 4 * round(PILOT * runs / 4))
        if pilot >= runs:
            raise InvalidInput(
                f"runs must be more than {pilot} for a learned score, whose pilot takes {pilot}, "
                f"got {runs}; use more runs, or the adversary 'length'"
            )
        rest = runs - pilot - (runs - pilot) % 2
        with closing(game(length, rest)) as same:  # but for the score
            accept(same)
        own = sample_seed(seed=seed, runs=runs, phase=_PILOT_PHASE)
        player = _Pilot(training=training, seed=own, initial=start)
        executor = executor_of(workers, timeout=timeout, isolated=False)
        played = executor.play(player, range(pilot), notify)
        results = {run: result for run, result in played if not isinstance(result, str | Lost)}
        failed = pilot - len(results)
        if failed > pilot // 2:
            raise TrainingFailed(
                f"{failed} of {pilot} pilot runs failed; run {name_of(training)} once by itself"
            )
        labels = [run % 2 == 1 for run in results]
        adversary = LearnedScore.learn(list(results.values()), labels, start)
        notify(f"{pilot:,} pilot runs have trained the score; {rest:,} other runs test it")
        return game(adversary, rest)
    if adversary == "length":
        adversary = length
    elif not callable(adversary):
        raise InvalidInput(
            "adversary must be 'learned', 'length' or a function of (words, returned) with "
            f"neighbours, got {_validate.shown(adversary)}"
        )
    return game(adversary, runs)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Pilot(Player):
    """Plays pilot runs: even runs on the first data set, odd ones on the second."""

    training: OnNeighbours
    seed: int
    initial: Any = None

    def open(self) -> PlayTile:
        def play(tile: int, notify: Notify) -> Any:
            seed = training_seed(tile, seed=self.seed)
            try:
                returned = self.training(None, tile % 2 == 1, seed)
                released = Released.of(returned, self.initial)
            except InvalidInput:
                raise
            except (Exception, SystemExit) as error:
                return f"{type(error).__name__}: {error}"
            return released if np.isfinite(released.vector).all() else "not finite"

        return play
