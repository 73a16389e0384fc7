"""Upper bounds on epsilon: accountants of described trainings.

The names are loaded on first use, so that a list of the accountants does not import scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.upper_bounds.accountants import (
        ACCOUNTANTS,
        HIDDEN_STATE_ACCOUNTANTS,
        Accountant,
        HiddenStateAccountant,
        all_upper_bounds,
        upper_bound,
    )
    from dpaudit.upper_bounds.calibration import noise_multiplier_for
    from dpaudit.upper_bounds.gaussian import GaussianAccountant
    from dpaudit.upper_bounds.pld import PldAccountant, composed_profile, privacy_profile
    from dpaudit.upper_bounds.rdp import RdpAccountant, renyi_divergences
    from dpaudit.upper_bounds.steps import HiddenState, NoisySteps

__all__ = [
    "ACCOUNTANTS",
    "HIDDEN_STATE_ACCOUNTANTS",
    "Accountant",
    "GaussianAccountant",
    "HiddenState",
    "HiddenStateAccountant",
    "NoisySteps",
    "PldAccountant",
    "RdpAccountant",
    "all_upper_bounds",
    "composed_profile",
    "noise_multiplier_for",
    "privacy_profile",
    "renyi_divergences",
    "upper_bound",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "accountants": (
                "ACCOUNTANTS HIDDEN_STATE_ACCOUNTANTS Accountant HiddenStateAccountant "
                "all_upper_bounds upper_bound"
            ),
            "calibration": "noise_multiplier_for",
            "gaussian": "GaussianAccountant",
            "pld": "PldAccountant composed_profile privacy_profile",
            "rdp": "RdpAccountant renyi_divergences",
            "steps": "HiddenState NoisySteps",
        },
    )
