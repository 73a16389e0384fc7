"""The adversaries by name: those of dpaudit, and those that other packages register."""

from __future__ import annotations

from dpaudit._registry import Registry
from dpaudit.threat_models import Adversary

_HERE = "dpaudit.adversaries"

ADVERSARIES: Registry[Adversary] = Registry(
    "adversary",
    "dpaudit.adversaries",
    {
        "random-dimension": f"{_HERE}.random_dimension:RandomDimension",
        "simulated-dimension": f"{_HERE}.simulated_dimension:SimulatedDimension",
        "random-direction": f"{_HERE}.random_direction:RandomDirection",
        "flipped-label": f"{_HERE}.flipped_label:FlippedLabel",
        "clipbkd": f"{_HERE}.clip_backdoor:ClipBackdoor",
        "api-access": f"{_HERE}.api_access:ApiAccess",
        "static-poisoning": f"{_HERE}.static_poisoning:StaticPoisoning",
        "intermediate-poisoning": f"{_HERE}.intermediate_poisoning:IntermediatePoisoning",
        "adaptive-poisoning": f"{_HERE}.adaptive_poisoning:AdaptivePoisoning",
        "gradient-attack": f"{_HERE}.gradient_attack:GradientAttack",
        "malicious-data": f"{_HERE}.malicious_data:MaliciousData",
        "canife": f"{_HERE}.canife:Canife",
        "dirac-gradient": f"{_HERE}.dirac_gradient:DiracGradient",
        "one-shot-iterates": f"{_HERE}.one_shot_iterates:OneShotIterates",
        "one-run-black-box": f"{_HERE}.one_run_black_box:OneRunBlackBox",
        "one-run-white-box": f"{_HERE}.one_run_white_box:OneRunWhiteBox",
        "rare-feature": f"{_HERE}.rare_feature:RareFeature",
        "start-distribution": f"{_HERE}.start_distribution:StartDistribution",
    },
    make=lambda kind: kind(),
)
"""Every registered adversary with its default settings. An entry point names the class."""


def adversary(name: str) -> Adversary:
    """The adversary of that name, with its default settings.

    Example:
        >>> adversary("simulated-dimension")
        SimulatedDimension(simulation='noiseless', ranking='per-step', simulations=4)
    """
    return ADVERSARIES[name]
