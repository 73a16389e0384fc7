"""Adversaries: they craft canaries before training and score them afterwards.

One file for each kind of canary: `dimensions` (a gradient in the hidden state threat model), `sums`
(a gradient, and every iterate), `points` (examples) and `adaptive` (a new example at every step).
What they may see is fixed by the types of `dpaudit.threat_models`.
"""

from dpaudit._registry import Registry
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
from dpaudit.adversaries.sums import (
    DiracGradient,
    GradientAttack,
    MaliciousData,
    OneRunWhiteBox,
    OneShotIterates,
)
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

_SHIPPED: tuple[Adversary, ...] = (
    RandomDimension(),
    SimulatedDimension(),
    RandomDirection(),
    FlippedLabel(),
    ClipBackdoor(),
    ApiAccess(),
    StaticPoisoning(),
    IntermediatePoisoning(),
    AdaptivePoisoning(),
    GradientAttack(),
    MaliciousData(),
    Canife(),
    DiracGradient(),
    OneShotIterates(),
    OneRunBlackBox(),
    OneRunWhiteBox(),
    RareFeature(),
    StartDistribution(),
    WorstCaseStart(),
    AdversarialSample(),
)

ADVERSARIES: Registry[Adversary] = Registry(
    "adversary",
    "dpaudit.adversaries",
    {shipped.name: shipped for shipped in _SHIPPED},
    make=lambda kind: kind(),
)
"""Every adversary with its default settings. An entry point of another package names the class."""


def adversary(name: str) -> Adversary:
    """The adversary of that name, with its default settings.

    Example:
        >>> adversary("simulated-dimension")
        SimulatedDimension(simulation='noiseless', ranking='per-step', simulations=4)
    """
    return ADVERSARIES[name]
