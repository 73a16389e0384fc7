"""Audits: play a game, store it, and assess its scores. One path for every kind of training."""

from dpaudit.audits.assessment import Assessment, AuditVerdict, Tightness, assess
from dpaudit.audits.identity import Description, Question
from dpaudit.audits.planning import Plan, TrainingPlan, plan, plan_training
from dpaudit.audits.progress import Bar, Progress, Silent
from dpaudit.audits.result import AuditResult, read_result
from dpaudit.audits.run import audit

__all__ = [
    "Assessment",
    "AuditResult",
    "AuditVerdict",
    "Bar",
    "Description",
    "Plan",
    "Progress",
    "Question",
    "Silent",
    "Tightness",
    "TrainingPlan",
    "assess",
    "audit",
    "plan",
    "plan_training",
    "read_result",
]
