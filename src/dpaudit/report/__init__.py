"""Figures, pages and sentences of audits. They show what `dpaudit.audits` computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.audits.evidence import AuditEvidence
    from dpaudit.report.pages import Facts, PageData, Snippet, check_page
    from dpaudit.report.rendering import render_page, thresholds_for, write_page

# Sentences are needed without pages, whose template takes a while to load.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "pages": "AuditEvidence Facts PageData Snippet check_page",
        "rendering": "render_page thresholds_for write_page",
    },
)

__all__ = [
    "AuditEvidence",
    "Facts",
    "PageData",
    "Snippet",
    "check_page",
    "render_page",
    "thresholds_for",
    "write_page",
]
