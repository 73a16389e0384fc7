"""Deterministic checks of a private training: which rule is broken, before any statistics."""

from dpaudit.checks.canaries import ShapedCanary
from dpaudit.checks.checking import check_step, check_training
from dpaudit.checks.findings import CheckResult, Finding, Rule
from dpaudit.checks.rules import CHECKS

RULES = tuple(check.rule for check in CHECKS.values())
"""All rules, in the order in which they are checked."""

__all__ = [
    "CHECKS",
    "RULES",
    "CheckResult",
    "Finding",
    "Rule",
    "ShapedCanary",
    "check_step",
    "check_training",
]
