"""The description of an audit's game. Nothing is played here.

Paper:
    Cebere, Bellet, Papernot: Tighter Privacy Auditing of DP-SGD in the Hidden State Threat Model
    (ICLR 2025), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, final

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Adversary, Canaries

Coin = Literal["half", "fair"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """Many trainings with or without the canaries: everything that determines the scores.

    See also: `dpaudit.engine.Speed`, which only changes how long they take.

    Arguments:
        mechanism: The training.
        adversary: The adversary that scores the trained models.
        canaries: The canaries that the adversary crafted.
        insertion: The steps at which the canaries are inserted.
        runs: Number of trainings.
        seed: Random seed of noise, coins and fresh initialisations, below 2**64.
        horizons: Numbers of steps after which to score; each is an audit of a training that stops
            there. By default only the end of training.
        coin: ``"half"`` inserts every canary in exactly half of the runs. ``"fair"`` has an
            independent fair coin for every (run, canary), the only choice for a single run.
    """

    mechanism: DPSGD
    adversary: Adversary
    canaries: Canaries
    insertion: Insertion = field(default_factory=Insertion)
    runs: int
    seed: int = 0
    horizons: tuple[int, ...] = ()
    coin: Coin = "fair"

    def __post_init__(self) -> None:
        _validate.integer("runs", self.runs, at_least=1)
        _validate.integer("seed", self.seed)
        _validate.one_of("coin", self.coin, ("half", "fair"))
        if self.coin == "half" and self.runs % 2:
            raise InvalidInput(
                f"runs must be even to insert the canary in exactly half of them, got {self.runs}; "
                "add a run, or use coin='fair'"
            )
        if self.canaries.count < 1:
            raise InvalidInput("canaries must be at least one, got none")
        self.mechanism.check_insertion(self.insertion)
        steps = self.mechanism.steps
        horizons = tuple(sorted(set(self.horizons))) or (steps,)
        for horizon in horizons:
            _validate.integer("horizons", horizon, at_least=1)
        if horizons[-1] > steps:
            raise InvalidInput(
                f"horizons must be at most the number of steps ({steps}), got {horizons[-1]}"
            )
        if self.insertion.count(horizons[0]) == 0:
            raise InvalidInput(
                f"horizons must be at least the first insertion step, "
                f"{self.insertion.offset + 1}, got {horizons[0]}"
            )
        object.__setattr__(self, "horizons", horizons)
