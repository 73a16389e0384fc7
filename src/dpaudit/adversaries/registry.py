"""The adversaries that ship with dpaudit, by the names the command line knows them by."""

from __future__ import annotations

from dpaudit import _validate
from dpaudit.adversaries.adaptive_poisoning import AdaptivePoisoning
from dpaudit.adversaries.api_access import ApiAccess
from dpaudit.adversaries.canife import Canife
from dpaudit.adversaries.clip_backdoor import ClipBackdoor
from dpaudit.adversaries.dirac_gradient import DiracGradient
from dpaudit.adversaries.flipped_label import FlippedLabel
from dpaudit.adversaries.gradient_attack import GradientAttack
from dpaudit.adversaries.intermediate_poisoning import IntermediatePoisoning
from dpaudit.adversaries.malicious_data import MaliciousData
from dpaudit.adversaries.one_run_black_box import OneRunBlackBox
from dpaudit.adversaries.one_run_white_box import OneRunWhiteBox
from dpaudit.adversaries.one_shot_iterates import OneShotIterates
from dpaudit.adversaries.random_dimension import RandomDimension
from dpaudit.adversaries.random_direction import RandomDirection
from dpaudit.adversaries.simulated_dimension import SimulatedDimension
from dpaudit.adversaries.static_poisoning import StaticPoisoning
from dpaudit.threat_models import Adversary

ADVERSARIES: dict[str, Adversary] = {
    adversary.name: adversary
    for adversary in (
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
    )
}


def adversary(name: str) -> Adversary:
    """The adversary of that name, with its default settings.

    Example:
        >>> adversary("simulated-dimension")
        SimulatedDimension(simulation='noiseless', ranking='per-step', simulations=4)
    """
    return ADVERSARIES[_validate.one_of("adversary", name, tuple(ADVERSARIES))]
