"""Audits inside the production run: one training, audited while it is trained."""

from dpaudit.live.audit import LiveAudit, ViolationFound, live_audit
from dpaudit.live.result import LiveResult

__all__ = ["LiveAudit", "LiveResult", "ViolationFound", "live_audit"]
