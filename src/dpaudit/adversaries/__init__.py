"""Adversaries: each crafts before training and scores after it. One small file an idea."""

from dpaudit.adversaries.contract import (
    AdaptedGradients,
    AdaptedPoints,
    AdaptiveAdversary,
    Adversary,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    ChoosesData,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
    Moment,
    StandardAdversary,
    StandardView,
)
from dpaudit.adversaries.flipped_label import FlippedLabel
from dpaudit.adversaries.random_dimension import RandomDimension
from dpaudit.adversaries.random_direction import RandomDirection
from dpaudit.adversaries.registry import ADVERSARIES, adversary
from dpaudit.adversaries.simulated_dimension import SimulatedDimension

__all__ = [
    "ADVERSARIES",
    "AdaptedGradients",
    "AdaptedPoints",
    "AdaptiveAdversary",
    "Adversary",
    "BlackBoxAdversary",
    "BlackBoxView",
    "Canaries",
    "CanaryPoints",
    "ChoosesData",
    "CraftedDimensions",
    "CraftedGradients",
    "FlippedLabel",
    "HiddenStateAdversary",
    "HiddenStateView",
    "Moment",
    "RandomDimension",
    "RandomDirection",
    "SimulatedDimension",
    "StandardAdversary",
    "StandardView",
    "adversary",
]
