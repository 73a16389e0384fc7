"""Cheap deterministic checks of a private training, before any statistics: which rule is broken."""

from dpaudit.checks.canaries import ShapedCanary
from dpaudit.checks.checking import check_step, check_training
from dpaudit.checks.findings import CheckResult, Finding, Rule
from dpaudit.checks.rules import CHECKS

RULES = tuple(rule for rule, _ in CHECKS)
"""Every rule, in the order in which they are checked."""

__all__ = [
    "RULES",
    "CheckResult",
    "Finding",
    "Rule",
    "ShapedCanary",
    "check_step",
    "check_training",
]
