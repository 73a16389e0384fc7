"""Audits: play a game, store it, and assess its scores. One path for every kind of training."""

from dpaudit.audits.assessment import Assessment, AuditVerdict, Tightness, assess
from dpaudit.audits.auditing import audit
from dpaudit.audits.description import Description
from dpaudit.audits.own_training import audit_training
from dpaudit.audits.planning import Plan, plan
from dpaudit.audits.progress import Bar, Progress, Silent
from dpaudit.audits.result import AuditResult
from dpaudit.audits.stored import read_result, summary_of
from dpaudit.audits.training_plan import TrainingPlan, plan_training

__all__ = [
    "Assessment",
    "AuditResult",
    "AuditVerdict",
    "Bar",
    "Description",
    "Plan",
    "Progress",
    "Silent",
    "Tightness",
    "TrainingPlan",
    "assess",
    "audit",
    "audit_training",
    "plan",
    "plan_training",
    "read_result",
    "summary_of",
]
