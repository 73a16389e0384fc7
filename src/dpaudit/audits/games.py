"""The game of what a user gives: a training of dpaudit's own, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpaudit import _validate
from dpaudit.audits.function_game import FunctionGame
from dpaudit.audits.game import Game
from dpaudit.audits.mechanism_game import MechanismGame
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.trainings.importing import Named


def game_of(training: Any, adversary: Any = None, **options: Any) -> Game:
    """The game of a `DPSGD`, of the name of a preset, or of a training function.

    Arguments:
        training: A `DPSGD`, a preset's name, a function, or ``module:function`` or
            ``FILE.py:function``.
        adversary: The adversary, or its name; a name with a colon is imported.
        options: Arguments of `MechanismGame` or of `FunctionGame`; `None` means the default. One
            that the other kind of training has is refused.
    """
    if isinstance(training, str) and ":" in training:
        training = Named("training", training)
    if isinstance(adversary, str) and ":" in adversary:
        adversary = Named("adversary", adversary)
    own = not isinstance(training, DPSGD | str)
    kind: Callable[..., Game] = FunctionGame if own else MechanismGame
    given = {name: value for name, value in options.items() if value is not None}
    other = {"insertion", "horizons", "canaries", "speed", "data_dir"}
    if not own:
        other = {"canary", "initial", "workers", "timeout", "isolated", "neighbours"}
    elif "neighbours" in given:
        from dpaudit.audits.neighbours import neighbours_game  # few audits need pipelines

        kind, other = neighbours_game, {*other, "canary"}
    for name in sorted(other & given.keys()):
        what = "a training function" if own else "a DPSGD or a preset"
        raise InvalidInput(
            f"{name} cannot be given for {what}, got {_validate.shown(given[name])}; leave it out"
        )
    return kind(training, adversary, **given)
