"""dpaudit: what differentially private training really leaks.

The public names, one by one. Those that train are loaded when they are first used, so that
``import dpaudit`` costs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import ErrorCounts, estimate, estimate_all, lower_bound, proven_curve
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.scores import Scores, read_scores, write_scores
from dpaudit.upper_bounds import all_upper_bounds, noise_multiplier_for, upper_bound

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Bounds",
    "Claim",
    "ClaimTest",
    "DpauditError",
    "ErrorCounts",
    "Scores",
    "ThreatModel",
    "all_upper_bounds",
    "estimate",
    "estimate_all",
    "lower_bound",
    "noise_multiplier_for",
    "proven_curve",
    "read_scores",
    "test_claim",
    "upper_bound",
    "write_scores",
]
