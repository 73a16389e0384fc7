"""Adversaries, one file each: they craft canaries before training and score them afterwards."""

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
from dpaudit.adversaries.rare_feature import RareFeature
from dpaudit.adversaries.registry import ADVERSARIES, adversary
from dpaudit.adversaries.simulated_dimension import SimulatedDimension
from dpaudit.adversaries.start_distribution import StartDistribution
from dpaudit.adversaries.static_poisoning import StaticPoisoning
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
    "Adversary",
    "ApiAccess",
    "BlackBoxAdversary",
    "BlackBoxView",
    "Canaries",
    "CanaryPoints",
    "Canife",
    "ChoosesData",
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
    "adversary",
]
