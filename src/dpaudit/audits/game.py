"""The interface to what is audited: a training that can be played many times.

`MechanismGame` plays thousands of DP-SGD trainings together in dpaudit's own engine, `FunctionGame`
calls a function of the user's once for each run. Nothing else asks which of the two is audited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from dpaudit.audits.identity import Description, Sample
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.executors import Executor, Notify
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.coins import inserted_in

Results = Generator[tuple[int, ScoreBlock | Failure]]
"""Numbers of tiles with their results."""


class Game(ABC):
    """A training that can be played many times, with and without canaries.

    See also: `dpaudit.audits.games.game_of`, which makes one of what a user gives.
    """

    description: Description
    """What decides the scores."""

    device: str
    """Device used, in words."""

    left_open: tuple[str, ...] = ()
    """Settings of speed that the user left open: a resumed audit keeps what was chosen."""

    needs_claim = False
    """Whether the user has to say what is claimed."""

    unit = "record"
    """What the canary is: a record, or a user or client with several."""

    records = 1
    """How many records enter together."""

    facts: Mapping[str, Any] = {}
    """What the first trainings showed: ``adversary``, ``doubts``, ``covers``, ``advice`` and
    ``alike``."""

    def resume(self, description: Description, facts: Mapping[str, Any]) -> None:
        """Continue a stored audit, with the choices and the facts of its beginning."""
        self.description = description
        shown = ("adversary", "doubts", "covers", "advice", "alike")
        self.facts = {key: facts[key] for key in shown if key in facts}

    def check(self, claim: Claim, notify: Notify) -> tuple[str, ...]:
        """Rules of private training that are broken, as sentences, before any statistics."""
        return ()

    def close(self) -> None:  # noqa: B027 - most games start none
        """End the processes that were started to look at the training."""

    @abstractmethod
    def executor(self, tiles: int) -> Executor:
        """The executor for a number of tiles, where the user gives none."""

    @abstractmethod
    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        """Play these tiles of a sample; yield each with its result as soon as it is finished.

        A tile is a pure function of the description, the sample and its number.
        """


def check_tile(description: Description, phase: int, tile: int, result: Any) -> None:
    """Raise `InvalidInput` unless this may be a tile of an audit: its runs, coins and canaries."""
    sample, canaries = description.sample(phase), description.canaries
    runs = sample.runs_of(tile) if tile >= 0 else range(0)
    wrong = ""
    if not runs:
        wrong = "there is no such tile"
    elif isinstance(result, Failure):
        coins = coins_of(description, sample, [result.run])
        wrong = "" if list(runs) == [result.run] else f"it has run {result.run}"
        if not wrong and (result.canaries, result.inserted) != (canaries, int(coins.sum())):
            wrong = "its coins are not those of the audit"
    elif isinstance(result, ScoreBlock):
        shape = len(description.horizons or (0,)), len(runs), canaries
        expected = {
            "horizon": np.broadcast_to(
                np.array(description.horizons or (0,)).reshape(-1, 1, 1), shape
            ),
            "run": np.broadcast_to(np.array(runs, dtype=int).reshape(1, -1, 1), shape),
            "canary": np.broadcast_to(np.arange(canaries), shape),
            "inserted": np.broadcast_to(coins_of(description, sample, runs), shape),
        }
        for name, column in expected.items():
            if not np.array_equal(getattr(result, name), column.ravel()):
                wrong = wrong or f"its column {name} is not that of the audit"
    else:
        wrong = f"it holds a {type(result).__name__}"
    if wrong:
        raise InvalidInput(
            f"tile {tile} must be one of the {len(sample.tiles):,} tiles of this audit, got "
            f"something else: {wrong}; do not change the results of jobs"
        )


def coins_of(description: Description, sample: Sample, runs: Sequence[int]) -> Any:
    """Which canaries are inserted in these runs."""
    if description.training is not None:
        each = (inserted_in(r, canaries=description.canaries, seed=sample.seed) for r in runs)
        return np.array(list(each)).reshape(len(runs), description.canaries)
    from dpaudit.games.coins import insertion_coins

    coins = insertion_coins(
        seed=sample.seed, runs=sample.runs, canaries=description.canaries, coin=description.coin
    )
    return coins.numpy()[list(runs)]
