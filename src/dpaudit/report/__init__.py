"""Figures and pages of audits. They render plain data that `dpaudit.audits` computed."""

from dpaudit.report.data import AuditEvidence, Facts, Horizon, PageData, RunsDone, Snippet
from dpaudit.report.rendering import render_page, thresholds_for, write_page

__all__ = [
    "AuditEvidence",
    "Facts",
    "Horizon",
    "PageData",
    "RunsDone",
    "Snippet",
    "render_page",
    "thresholds_for",
    "write_page",
]
