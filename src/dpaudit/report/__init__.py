"""Reports: figures, pages and sentences. They render what the library computed."""

from dpaudit.report.from_audit import audit_page, record_page
from dpaudit.report.page_data import (
    Evidence,
    Facts,
    Horizon,
    PageData,
    Progress,
    Snippet,
    evidence,
)
from dpaudit.report.rendering import render_page, thresholds_for, write_page

__all__ = [
    "Evidence",
    "Facts",
    "Horizon",
    "PageData",
    "Progress",
    "Snippet",
    "audit_page",
    "evidence",
    "record_page",
    "render_page",
    "thresholds_for",
    "write_page",
]
