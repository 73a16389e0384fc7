"""Epsilon from above: what the accountants promise of a described training.

One file an accountant, all of one shape (`accountant.Accountant`), held to one contract
(`contract.check_accountant`).
"""

from dpaudit.upper_bounds.accountant import Accountant, Answer, NoisySteps
from dpaudit.upper_bounds.bounds import (
    ACCOUNTANTS,
    all_upper_bounds,
    privacy_profile,
    upper_bound,
)
from dpaudit.upper_bounds.calibration import noise_multiplier_for
from dpaudit.upper_bounds.gaussian import GaussianAccountant
from dpaudit.upper_bounds.privacy_loss import PldAccountant
from dpaudit.upper_bounds.prv import PrvAccountant
from dpaudit.upper_bounds.renyi import RdpAccountant, renyi_divergences

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Answer",
    "GaussianAccountant",
    "NoisySteps",
    "PldAccountant",
    "PrvAccountant",
    "RdpAccountant",
    "all_upper_bounds",
    "noise_multiplier_for",
    "privacy_profile",
    "renyi_divergences",
    "upper_bound",
]
