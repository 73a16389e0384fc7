"""Audits: play a game, store it, and assess its scores. One path for every kind of training.

The names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.audits.assessment import Assessment, AuditVerdict, Tightness, assess
    from dpaudit.audits.bar import Bar
    from dpaudit.audits.identity import Description, Question
    from dpaudit.audits.planning import Plan, TrainingPlan, plan, plan_training
    from dpaudit.audits.progress import Progress, Silent
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

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "assessment": "Assessment AuditVerdict Tightness assess",
            "bar": "Bar",
            "identity": "Description Question",
            "planning": "Plan TrainingPlan plan plan_training",
            "progress": "Progress Silent",
            "result": "AuditResult read_result",
            "run": "audit",
        },
    )
