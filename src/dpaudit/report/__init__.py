"""Figures and pages of audits. They render plain data that `dpaudit.audits` computed."""

from dpaudit.report.data import Evidence, Facts, Horizon, PageData, Progress, Snippet
from dpaudit.report.rendering import render_page, thresholds_for, write_page

__all__ = [
    "Evidence",
    "Facts",
    "Horizon",
    "PageData",
    "Progress",
    "Snippet",
    "render_page",
    "thresholds_for",
    "write_page",
]
