"""dpaudit: lower bounds on the privacy loss of differentially private training.

These are the public names. None of them imports torch until something is trained.
"""

from dpaudit import adversaries, presets
from dpaudit._version import __version__ as __version__
from dpaudit.audits import AuditResult, Plan, audit, audit_training, plan
from dpaudit.checks import CheckResult, check_training
from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import ErrorCounts, estimate, estimate_all, lower_bound, proven_curve
from dpaudit.mechanisms import (
    DPSGD,
    FixedBatches,
    FixedInitialisation,
    FreshInitialisation,
    FullBatch,
    Insertion,
    PoissonBatches,
    ReshuffledEpochs,
)
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.scores import Scores, Store, read_scores, write_scores
from dpaudit.trainings import GradientCanary, Predictions
from dpaudit.upper_bounds import all_upper_bounds, noise_multiplier_for, upper_bound

TrainingAudit = AuditResult
"""The name that results of `audit_training` had in dpaudit 0.1."""

__all__ = [
    "DPSGD",
    "AuditResult",
    "Bound",
    "Bounds",
    "CheckResult",
    "Claim",
    "ClaimTest",
    "DpauditError",
    "ErrorCounts",
    "FixedBatches",
    "FixedInitialisation",
    "FreshInitialisation",
    "FullBatch",
    "GradientCanary",
    "Insertion",
    "Plan",
    "PoissonBatches",
    "Predictions",
    "ReshuffledEpochs",
    "Scores",
    "Store",
    "ThreatModel",
    "TrainingAudit",
    "adversaries",
    "all_upper_bounds",
    "audit",
    "audit_training",
    "check_training",
    "estimate",
    "estimate_all",
    "lower_bound",
    "noise_multiplier_for",
    "plan",
    "presets",
    "proven_curve",
    "read_scores",
    "test_claim",
    "upper_bound",
    "write_scores",
]
