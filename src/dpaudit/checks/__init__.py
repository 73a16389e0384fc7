"""Deterministic checks of a private training: which rule is broken, before any statistics."""

from dpaudit.checks.checking import MORE_RULES, RULES, check_step, check_training
from dpaudit.checks.findings import CheckResult, Finding, Outcome, Probe, Rule
from dpaudit.checks.subject import ShapedCanary

__all__ = [
    "MORE_RULES",
    "RULES",
    "CheckResult",
    "Finding",
    "Outcome",
    "Probe",
    "Rule",
    "ShapedCanary",
    "check_step",
    "check_training",
]
