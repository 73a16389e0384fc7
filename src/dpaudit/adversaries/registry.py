"""The adversaries that ship with dpaudit, by the names the command line knows them by."""

from __future__ import annotations

from dpaudit import _validate
from dpaudit.adversaries.contract import Adversary
from dpaudit.adversaries.flipped_label import FlippedLabel
from dpaudit.adversaries.random_dimension import RandomDimension
from dpaudit.adversaries.random_direction import RandomDirection
from dpaudit.adversaries.simulated_dimension import SimulatedDimension

ADVERSARIES: dict[str, Adversary] = {
    adversary.name: adversary
    for adversary in (
        RandomDimension(),
        SimulatedDimension(),
        RandomDirection(),
        FlippedLabel(),
    )
}


def adversary(name: str) -> Adversary:
    """The adversary of that name, with its default settings.

    Example:
        >>> adversary("simulated-dimension")
        SimulatedDimension(simulation='noiseless', ranking='per-step', simulations=4)
    """
    return ADVERSARIES[_validate.one_of("adversary", name, tuple(ADVERSARIES))]
