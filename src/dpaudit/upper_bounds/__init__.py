"""Upper bounds on epsilon: accountants of described trainings, one file each.

The names are loaded on first use, so that a list of the accountants does not import scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.upper_bounds.base import Accountant, Answer, NoisySteps
    from dpaudit.upper_bounds.bounds import all_upper_bounds, privacy_profile, upper_bound
    from dpaudit.upper_bounds.calibration import noise_multiplier_for
    from dpaudit.upper_bounds.gaussian import GaussianAccountant
    from dpaudit.upper_bounds.hidden_state import (
        HIDDEN_STATE_ACCOUNTANTS,
        HiddenState,
        HiddenStateAccountant,
        HiddenSteps,
    )
    from dpaudit.upper_bounds.privacy_loss import PldAccountant
    from dpaudit.upper_bounds.prv import PrvAccountant
    from dpaudit.upper_bounds.registry import ACCOUNTANTS
    from dpaudit.upper_bounds.renyi import RdpAccountant, renyi_divergences

__all__ = [
    "ACCOUNTANTS",
    "HIDDEN_STATE_ACCOUNTANTS",
    "Accountant",
    "Answer",
    "GaussianAccountant",
    "HiddenState",
    "HiddenStateAccountant",
    "HiddenSteps",
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

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "base": "Accountant Answer NoisySteps",
            "bounds": "all_upper_bounds privacy_profile upper_bound",
            "calibration": "noise_multiplier_for",
            "gaussian": "GaussianAccountant",
            "hidden_state": (
                "HIDDEN_STATE_ACCOUNTANTS HiddenState HiddenStateAccountant HiddenSteps"
            ),
            "privacy_loss": "PldAccountant",
            "prv": "PrvAccountant",
            "registry": "ACCOUNTANTS",
            "renyi": "RdpAccountant renyi_divergences",
        },
    )
