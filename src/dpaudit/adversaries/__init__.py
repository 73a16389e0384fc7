"""Adversaries: they craft canaries before training and score them afterwards.

One file for each kind of canary: `dimensions` (a gradient in the hidden state threat model), `sums`
(a gradient, and every iterate), `points` (examples) and `adaptive` (a new example at every step).
What they may see is fixed by the types of `dpaudit.threat_models`. They are loaded on first use, so
that an audit imports only its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use
from dpaudit.threat_models import (
    AdaptedGradients,
    AdaptedPoints,
    AdaptiveAdversary,
    Adversary,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    ChoosesData,
    ChoosesStart,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
    Moment,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    from dpaudit.adversaries.adaptive import AdaptivePoisoning, Canife
    from dpaudit.adversaries.blank import AdversarialSample, WorstCaseStart
    from dpaudit.adversaries.dimensions import (
        RandomDimension,
        RandomDirection,
        SimulatedDimension,
        StartDistribution,
    )
    from dpaudit.adversaries.points import (
        ApiAccess,
        ClipBackdoor,
        FlippedLabel,
        IntermediatePoisoning,
        OneRunBlackBox,
        RareFeature,
        StaticPoisoning,
    )
    from dpaudit.adversaries.registry import ADVERSARIES, adversary
    from dpaudit.adversaries.sums import (
        DiracGradient,
        GradientAttack,
        MaliciousData,
        OneRunWhiteBox,
        OneShotIterates,
    )

__all__ = [
    "ADVERSARIES",
    "AdaptedGradients",
    "AdaptedPoints",
    "AdaptiveAdversary",
    "AdaptivePoisoning",
    "AdversarialSample",
    "Adversary",
    "ApiAccess",
    "BlackBoxAdversary",
    "BlackBoxView",
    "Canaries",
    "CanaryPoints",
    "Canife",
    "ChoosesData",
    "ChoosesStart",
    "ClipBackdoor",
    "CraftedDimensions",
    "CraftedGradients",
    "DiracGradient",
    "FlippedLabel",
    "GradientAttack",
    "HiddenStateAdversary",
    "HiddenStateView",
    "IntermediatePoisoning",
    "MaliciousData",
    "Moment",
    "OneRunBlackBox",
    "OneRunWhiteBox",
    "OneShotIterates",
    "RandomDimension",
    "RandomDirection",
    "RareFeature",
    "SimulatedDimension",
    "StandardAdversary",
    "StandardView",
    "StartDistribution",
    "StaticPoisoning",
    "WorstCaseStart",
    "adversary",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "adaptive": "AdaptivePoisoning Canife",
            "blank": "AdversarialSample WorstCaseStart",
            "dimensions": "RandomDimension RandomDirection SimulatedDimension StartDistribution",
            "points": "ApiAccess ClipBackdoor FlippedLabel IntermediatePoisoning OneRunBlackBox "
            "RareFeature StaticPoisoning",
            "registry": "ADVERSARIES adversary",
            "sums": "DiracGradient GradientAttack MaliciousData OneRunWhiteBox OneShotIterates",
        },
    )
