"""dpaudit: lower bounds on the privacy loss of differentially private training.

These are the public names. None of them imports torch until something is trained, and the
descriptions of trainings and adversaries alone are loaded at once.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpaudit import adversaries, presets
from dpaudit._version import __version__ as __version__
from dpaudit.errors import DpauditError
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

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult, Plan, audit, plan
    from dpaudit.checks import CheckResult, check_training
    from dpaudit.claims import Claim, ClaimTest, test_claim
    from dpaudit.live import LiveAudit, live_audit
    from dpaudit.lower_bounds import ErrorCounts, estimate, estimate_all, lower_bound, proven_curve
    from dpaudit.pipelines import check_pipeline
    from dpaudit.scores import Scores, Store, read_scores, write_scores
    from dpaudit.trainings import GradientCanary, Predictions
    from dpaudit.upper_bounds import all_upper_bounds, noise_multiplier_for, upper_bound

# package or module -> its names that are loaded on first use, because they import scipy or torch.
_HOMES = {
    "audits": "AuditResult Plan audit plan",
    "checks": "CheckResult check_training",
    "claims": "Claim ClaimTest test_claim",
    "live": "LiveAudit live_audit",
    "lower_bounds.counts": "ErrorCounts",
    "lower_bounds.estimating": "estimate estimate_all lower_bound",
    "lower_bounds.simultaneous": "proven_curve",
    "pipelines": "check_pipeline",
    "scores": "Scores Store read_scores write_scores",
    "trainings": "GradientCanary Predictions",
    "upper_bounds": "all_upper_bounds noise_multiplier_for upper_bound",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

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
    "LiveAudit",
    "Plan",
    "PoissonBatches",
    "Predictions",
    "ReshuffledEpochs",
    "Scores",
    "Store",
    "ThreatModel",
    "adversaries",
    "all_upper_bounds",
    "audit",
    "check_pipeline",
    "check_training",
    "estimate",
    "estimate_all",
    "live_audit",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        if not name.startswith("_") and find_spec(f"dpaudit.{name}"):
            return import_module(f"dpaudit.{name}")  # dpaudit.data after import dpaudit
        raise AttributeError(f"module 'dpaudit' has no attribute {name!r}")
    value = getattr(import_module(f"dpaudit.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
