"""Audits: from a described training to bounds, stored as they go, and planned beforehand."""

from dpaudit.audits.assessment import Assessment, assess
from dpaudit.audits.auditing import audit
from dpaudit.audits.planning import Plan, plan
from dpaudit.audits.progress import Bar, Progress, Silent
from dpaudit.audits.result import AuditResult

__all__ = [
    "Assessment",
    "AuditResult",
    "Bar",
    "Plan",
    "Progress",
    "Silent",
    "assess",
    "audit",
    "plan",
]
