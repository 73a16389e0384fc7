"""The public names, pinned one by one: a new or a lost name fails here."""

import pkgutil
import subprocess
import sys

import pytest

import dpaudit
from dpaudit import executors, lower_bounds, models, testing, trainings, upper_bounds


def test_public_names():
    assert sorted(dpaudit.__all__) == PUBLIC
    for name in dpaudit.__all__:
        assert getattr(dpaudit, name) is not None
    assert set(PUBLIC) <= set(dir(dpaudit))


LOADED_ON_FIRST_USE = [executors, lower_bounds, models, testing, trainings, upper_bounds]


@pytest.mark.parametrize("package", LOADED_ON_FIRST_USE)
def test_names_that_are_loaded_on_first_use_are_listed(package):
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)  # an imported module would take the place of the name
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018


def test_lower_bounds_and_accountants_of_version_0_1_keep_their_names():
    methods = (
        "clopper-pearson gaussian-dp jeffreys joint-beta katz-log adjusted-log bailey inverse-sinh "
        "gaussian-fit one-run one-run-fdp profile"
    )
    assert set(methods.split()) <= set(lower_bounds.METHODS)
    assert {"gaussian", "pld", "prv", "rdp"} <= set(upper_bounds.ACCOUNTANTS)


PUBLIC = [
    "AuditResult",
    "Bound",
    "Bounds",
    "CheckResult",
    "Claim",
    "ClaimTest",
    "DPSGD",
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


def test_import_is_fast_because_scipy_and_torch_are_loaded_on_first_use():
    code = "import sys, dpaudit; sys.exit(bool({'scipy', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
