"""Audits inside the production run: one training, audited while it is trained."""

from dpaudit.live.audit import LiveAudit, ViolationFound, live_audit

__all__ = ["LiveAudit", "ViolationFound", "live_audit"]
